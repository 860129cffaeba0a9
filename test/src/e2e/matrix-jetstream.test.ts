import { runMatrix } from "./matrix.test.kit.js";

runMatrix("jetstream");
