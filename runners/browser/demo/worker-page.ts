/** A page whose runner lives in a worker. */
import { forwardPageState } from "@toolrunner/runner-sdk/browser";
import { subjectOf } from "./connection.js";
import { startWorker } from "./start-worker.js";

const status = document.querySelector("#runner");
const worker = startWorker();
forwardPageState(worker);
worker.addEventListener("message", ({ data }: MessageEvent<{ readonly state?: string }>) => {
  if (data.state !== undefined && status !== null) status.textContent = data.state;
});
worker.postMessage({ subject: subjectOf(location.href) });
