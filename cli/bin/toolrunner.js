#!/usr/bin/env node
import { runProcess } from "../dist/process.js";

await runProcess();
