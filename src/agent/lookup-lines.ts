import type { Ask } from '../api/api-client.ts';
import type { EntryDocument } from '../api/documents.ts';
import { type Output, writeLines } from './terminal.ts';

/** So many IPs are asked for in one request. */
const AT_A_TIME = 1_000;

/** No address is longer; of a line that is, so much is shown. */
const IP_LENGTH = 64;

/**
 * Looks up every line of `input`, an IP each, and writes a JSON line for each in order: `{"ip", "entry"}`, where `entry` is
 * null for what nothing is known of. What has arrived is answered at once, a thousand at a time; waits for the reader of the
 * output. Gives whether something was known of all of them.
 */
export async function lookupLines(
  ask: Ask,
  input: AsyncIterable<Uint8Array | string>,
  output: Output,
  signal: AbortSignal,
): Promise<boolean> {
  let all = true;
  const answer = async (lines: readonly string[]): Promise<void> => {
    const ips = lines.map((line) => line.trim().slice(0, IP_LENGTH)).filter(Boolean);
    for (let at = 0; at < ips.length && !signal.aborted; at += AT_A_TIME) {
      all = (await lookUp(ask, ips.slice(at, at + AT_A_TIME), output)) && all;
      await output.drained?.(signal);
    }
  };
  const decoder = new TextDecoder();
  let rest = '';
  for await (const part of input) {
    const text = typeof part === 'string' ? part : decoder.decode(part, { stream: true });
    const lines = (rest + text).split('\n');
    rest = (lines.pop() ?? '').slice(0, IP_LENGTH * 2);
    await answer(lines);
    if (signal.aborted) return all;
  }
  await answer([rest]);
  return all;
}

async function lookUp(ask: Ask, ips: readonly string[], output: Output): Promise<boolean> {
  const found = (await ask('/v1/lookup', { ips })) as { entries: readonly (EntryDocument | null)[] };
  const lines = ips.map((ip, at) => `${JSON.stringify({ ip, entry: found.entries[at] ?? null })}\n`);
  writeLines(output, lines.join(''));
  return found.entries.every((entry) => entry !== null);
}
