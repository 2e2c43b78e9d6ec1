// Compiled from ipcache-mark.c by `npm run build:bpf`: do not edit. clang version 14
// biome-ignore-all format: written by a program
import type { ProgramImage } from '../../../../../src/datapath/linux/bpf/program.ts';

/** The program `ipcache_mark` of ipcache-mark.c. */
export const ipcacheMark: ProgramImage = {
  name: 'ipcache_mark',
  code: [
    'vxYAAAAAAAC3AQAAAAAAAHsa+P8AAAAAexrw/wAAAAB7Guj/AAAAAGFhEAAAAAAAFgEcAIbdAABWAScACAAAALQBAABAAAAAYxro',
    '/wAAAAC0AQAAAQAAAHMa7/8AAAAAv6MAAAAAAAAHAwAA8P///79hAAAAAAAAtAIAABAAAAC0BAAABAAAALQFAAABAAAAhQAAAEQA',
    'AAAVAAEAAAAAAAUAGgAAAAAAv6IAAAAAAAAHAgAA6P///xgBAAAAAAAAAAAAAAAAAACFAAAAAQAAAFUAFQAAAAAAtAEAAAAAAABj',
    'FjAAAAAAAGMWCAAAAAAAtAIAAAAAAABjFjgAAAAAAGMmNAAAAAAAtAAAAP////+VAAAAAAAAALQBAAACAAAAcxrv/wAAAAC0AQAA',
    'oAAAAGMa6P8AAAAAv6MAAAAAAAAHAwAA8P///79hAAAAAAAAtAIAABgAAAC0BAAAEAAAALQFAAABAAAAhQAAAEQAAAAVAOb/AAAA',
    'AAUA6/8AAAAAYQEAAAAAAABjFggAAAAAAGEBBAAAAAAAYxYwAAAAAAC0AQAAAQAAAGkCCgAAAAAABQDo/wAAAAA=',
  ].join(''),
  maps: [
    [23, 'ipcache'],
  ],
};
