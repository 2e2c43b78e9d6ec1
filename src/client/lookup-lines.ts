import type { Ask } from '../api/api-client.ts';
import type { EntryDocument } from '../api/documents.ts';
import { type Output, writeLines } from '../process/terminal.ts';

/** Maximum number of IPs in one request. */
const ADDRESSES_PER_REQUEST = 1_000;

/** Maximum length of an IP in a request. No address is that long. The rest of a longer line is dropped. */
const MAX_IP_LENGTH = 64;

/**
 * Looks up the IP in each line of `input` and writes one JSON line for each, in order: `{"ip", "entry"}`. Skips empty
 * lines. `at` is the moment of the entries; default: now. `entry` is null if the IP is unknown. If the IP is invalid,
 * the line also has an `error`. Answers as soon as lines arrive, up to a thousand in one request, and waits for the
 * reader of the output. Returns true if every IP has an entry.
 */
export async function lookupLines(
  ask: Ask,
  input: AsyncIterable<Uint8Array | string>,
  output: Output,
  signal: AbortSignal,
  at?: string,
): Promise<boolean> {
  let areAllFound = true;
  const answer = async (lines: readonly string[]): Promise<void> => {
    const ips = lines.map((line) => line.trim().slice(0, MAX_IP_LENGTH)).filter(Boolean);
    for (let from = 0; from < ips.length && !signal.aborted; from += ADDRESSES_PER_REQUEST) {
      areAllFound =
        (await lookUp(ask, ips.slice(from, from + ADDRESSES_PER_REQUEST), output, at)) && areAllFound;
      await output.drained?.(signal);
    }
  };
  const decoder = new TextDecoder();
  let rest = '';
  for await (const part of input) {
    const text = typeof part === 'string' ? part : decoder.decode(part, { stream: true });
    const lines = (rest + text).split('\n');
    // Keeps only what a request may contain, because an unfinished line may have any length.
    rest = (lines.pop() ?? '').trimStart().slice(0, MAX_IP_LENGTH);
    await answer(lines);
    if (signal.aborted) return areAllFound;
  }
  await answer([rest]);
  return areAllFound;
}

/** The used fields of the response to `POST /v1/lookup`. */
interface LookupAnswer {
  readonly entries: readonly (EntryDocument | null)[];
  readonly errors: readonly { readonly index: number; readonly detail: string }[];
}

async function lookUp(
  ask: Ask,
  ips: readonly string[],
  output: Output,
  at: string | undefined,
): Promise<boolean> {
  const items = at === undefined ? ips : ips.map((address) => ({ address, at }));
  const { entries, errors } = (await ask('/v1/lookup', { ips: items })) as LookupAnswer;
  const details = new Map(errors.map(({ index, detail }) => [index, detail]));
  const lines = ips.map((ip, index) => {
    const error = details.get(index);
    return `${JSON.stringify({ ip, entry: entries[index] ?? null, ...(error !== undefined && { error }) })}\n`;
  });
  writeLines(output, lines.join(''));
  return entries.every((entry) => entry !== null);
}
