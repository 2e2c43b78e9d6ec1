import { parseArgs } from 'node:util';
import { BENCHES, type BenchOptions } from './catalog.ts';

/** The requested benches and options. */
export type BenchCommand =
  | { readonly kind: 'help' }
  | { readonly kind: 'wrong'; readonly reason: string }
  | { readonly kind: 'run'; readonly names: readonly string[]; readonly options: BenchOptions };

/** The usage of the command. */
export function usage(): string {
  const names = Object.entries(BENCHES).map(([name, { summary }]) => `  ${name.padEnd(13)}${summary}`);
  return `usage: npm run -s bench -- NAME… [--n N] [--peers] [--peer FILE] [--json]

${names.join('\n')}

  --n N      how large
  --peers    measure the peers too: the original's five maps, immutable.Map, the npm trie
  --peer FILE  compare with what another program measured in the same minutes:
             {"n": 1000000, "fresh": ns, "unchanged": ns, …, "bytesPerEntry": bytes}
  --json     one line of JSON for each NAME instead of tables
  --help     this text
`;
}

const OPTIONS = {
  n: { type: 'string' },
  json: { type: 'boolean', default: false },
  peers: { type: 'boolean', default: false },
  peer: { type: 'string' },
  help: { type: 'boolean', short: 'h', default: false },
} as const;

type Words = ReturnType<
  typeof parseArgs<{ args: string[]; allowPositionals: true; options: typeof OPTIONS }>
>;

/** The parsed arguments, or the error. */
function parseWords(words: readonly string[]): Words | string {
  try {
    return parseArgs({ args: [...words], allowPositionals: true, options: OPTIONS });
  } catch (error) {
    return error instanceof Error ? error.message : String(error);
  }
}

/** Parses the command line. Names are returned as given; options are validated. */
export function parseCommandLine(words: readonly string[]): BenchCommand {
  const result = parseWords(words);
  if (typeof result === 'string') return { kind: 'wrong', reason: result };
  const { values, positionals: names } = result;
  if (values.help) return { kind: 'help' };
  if (names.length === 0) return { kind: 'wrong', reason: 'no NAME given' };
  const unknown = names.find((name) => !Object.hasOwn(BENCHES, name));
  if (unknown !== undefined) return { kind: 'wrong', reason: `unknown bench '${unknown}'` };
  const { json, peers, peer } = values;
  const options = { json, peers, ...(peer !== undefined && { peer }) };
  if (values.n === undefined) return { kind: 'run', names, options };
  const n = Number(values.n.replaceAll('_', ''));
  if (!Number.isSafeInteger(n) || n < 1) return { kind: 'wrong', reason: `--n ${values.n}: not a count` };
  return { kind: 'run', names, options: { n, ...options } };
}
