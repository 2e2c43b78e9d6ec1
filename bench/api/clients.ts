import { Agent, get } from 'node:http';
import { performance } from 'node:perf_hooks';
import { text } from 'node:stream/consumers';
import { podAddress } from '../pod-address.ts';

// node clients.js JSON: monitors and requests against an agent, or a list read page by page, in a separate process, so
// that the agent pays only for their connections. Prints one line of JSON at the end.

/** Monitors and requests. */
export interface LoadOptions {
  readonly url: string;
  /** Number of prefixes to request: the first /32 of 10.0.0.0/8. */
  readonly prefixes: number;
  readonly monitors: number;
  readonly requestsPerSecond: number;
  readonly seconds: number;
}

/** The result of {@link LoadOptions}. */
export interface LoadReport {
  readonly requests: number;
  /** Number of answers other than 200. */
  readonly refused: number;
  /** Milliseconds until an answer was complete. */
  readonly p50: number;
  readonly p99: number;
  /** Bytes that all monitors received. */
  readonly monitored: number;
  /** Milliseconds from a change to its arrival at a monitor, including the 50 ms for which changes are batched. */
  readonly seenP50: number;
  readonly seenP99: number;
}

/** A list, page by page, repeatedly. */
export interface PagesOptions {
  readonly url: string;
  readonly pages: number;
}

/** Milliseconds until a page was complete. */
export interface PagesReport {
  readonly p50: number;
  readonly p99: number;
}

function percentile(values: number[], part: number): number {
  return values.sort((a, b) => a - b)[Math.floor(values.length * part)] ?? Number.NaN;
}

function report(what: LoadReport | PagesReport): void {
  process.stdout.write(`${JSON.stringify(what)}\n`, () => process.exit());
}

const agent = new Agent({ keepAlive: true, maxSockets: 50 });

function load({ url, prefixes, monitors, requestsPerSecond, seconds }: LoadOptions): void {
  const took: number[] = [];
  const seen: number[] = [];
  let monitored = 0;
  let refused = 0;

  for (let i = 0; i < monitors; i++) {
    get(`${url}/v1/monitor`, { agent: false }, (answer) => {
      answer.on('error', () => undefined);
      answer.on('data', (part: Buffer) => {
        monitored += part.length;
        if (i > 0) return;
        const at = /"at":"([^"]+)"/.exec(part.subarray(0, 200).toString('latin1'))?.[1];
        if (at !== undefined) seen.push(Date.now() - Date.parse(at));
      });
    }).on('error', () => undefined);
  }

  const ask = (number: number): void => {
    const begun = performance.now();
    const at = (number * 7919) % prefixes;
    const path = number % 10 === 0 ? '/v1/status' : `/v1/ipcache/lookup/${podAddress(at)}`;
    get(`${url}${path}`, { agent }, (answer) => {
      if (answer.statusCode !== 200) refused++;
      answer.resume();
      answer.on('end', () => took.push(performance.now() - begun));
      answer.on('error', () => refused++);
    }).on('error', () => refused++);
  };

  const begun = performance.now();
  let asked = 0;
  const timer = setInterval(() => {
    const due = Math.min(seconds, (performance.now() - begun) / 1000) * requestsPerSecond;
    while (asked < due) ask(asked++);
  }, 5);
  const finish = (): void => {
    clearInterval(timer);
    report({
      requests: took.length,
      refused,
      p50: percentile(took, 0.5),
      p99: percentile(took, 0.99),
      monitored,
      seenP50: percentile(seen, 0.5),
      seenP99: percentile(seen, 0.99),
    });
  };
  setTimeout(finish, seconds * 1000 + 500);
}

async function readPages({ url, pages }: PagesOptions): Promise<void> {
  const took: number[] = [];
  const list = '/v1/ipcache?limit=1000';
  let path = list;
  for (let i = 0; i < pages; i++) {
    const begun = performance.now();
    const page = await new Promise<string>((resolve, reject) => {
      get(`${url}${path}`, { agent }, (answer) => {
        if (answer.statusCode === 200) resolve(text(answer));
        else reject(new Error(`a page was answered with ${answer.statusCode}`));
      }).on('error', reject);
    });
    took.push(performance.now() - begun);
    const next = /"continue":"([^"]+)"\}$/.exec(page)?.[1];
    path = next === undefined ? list : `${list}&continue=${next}`;
  }
  const warm = took.slice(pages / 5);
  report({ p50: percentile(warm, 0.5), p99: percentile(warm, 0.99) });
}

const options: LoadOptions | PagesOptions = JSON.parse(process.argv[2] ?? '{}');
if ('pages' in options) await readPages(options);
else load(options);
