/** Version of this package, as runners report it; a test compares it with package.json. */
export const SDK_VERSION = "0.1.0";
