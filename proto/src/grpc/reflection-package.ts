/** The descriptors of all services, in the form that `@grpc/reflection` reads. */
import { FILE_DESCRIPTORS } from "../gen/file-descriptors.js";

/** A proto-loader package with one entry; reflection reads its `fileDescriptorProtos` and nothing else. */
export interface ReflectionPackage {
  readonly [name: string]: {
    readonly format: "Protocol Buffer 3 EnumDescriptorProto";
    readonly type: object;
    readonly fileDescriptorProtos: Buffer[];
  };
}

/** For `new ReflectionService(reflectionPackage())`: every file of `toolrunner.v1` as an encoded FileDescriptorProto. */
export function reflectionPackage(): ReflectionPackage {
  return {
    "toolrunner.v1": {
      // The kind that needs no codec beside the descriptors.
      format: "Protocol Buffer 3 EnumDescriptorProto",
      type: {},
      fileDescriptorProtos: Object.values(FILE_DESCRIPTORS).map((base64) => Buffer.from(base64, "base64")),
    },
  };
}
