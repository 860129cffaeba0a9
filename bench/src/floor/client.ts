/** The floor's dialling end of a gRPC stream. */
import { type ClientDuplexStream, credentials, makeClientConstructor } from "@grpc/grpc-js";
import { floorService } from "./service.js";

export type FloorStream = ClientDuplexStream<Buffer, Buffer>;

/** Opens one of the streams of the floor's broker at `grpc://host:port`. */
export function openFloorStream(url: string, name: "call" | "run"): FloorStream {
  const Client = makeClientConstructor(floorService, "Floor");
  const client = new Client(new URL(url).host, credentials.createInsecure());
  const { path, requestSerialize, responseDeserialize } = floorService[name];
  const stream = client.makeBidiStreamRequest(path, requestSerialize, responseDeserialize);
  stream.on("error", () => undefined);
  return stream;
}
