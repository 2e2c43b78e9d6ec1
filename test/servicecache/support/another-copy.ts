import { createRequire } from 'node:module';

const require = createRequire(import.meta.url);
const path = require.resolve('immutable');
const { [path]: loaded } = require.cache;
delete require.cache[path];

/**
 * A second copy of `immutable`, as in a program with another version of it. The engines accept collections of
 * both.
 */
export const anotherCopy: typeof import('immutable') = require(path);

if (loaded === undefined) delete require.cache[path];
else require.cache[path] = loaded;
