/** Preloaded on the second Node: better-sqlite3's add-on comes from `TOOLRUNNER_SQLITE_ADD_ON`, compiled for that Node. */
const Module = require("node:module");

const resolve = Module._resolveFilename;
Module._resolveFilename = function resolveFilename(request, ...rest) {
  const own = typeof request === "string" && request.endsWith("better_sqlite3.node");
  return resolve.call(this, own ? process.env.TOOLRUNNER_SQLITE_ADD_ON : request, ...rest);
};
