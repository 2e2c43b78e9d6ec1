import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, expect, it, onTestFinished } from 'vitest';
import { temporaryFolder } from './agent/support/temporary-folder.ts';
import { bundle } from './base/support/bundle.ts';
import { type EtcdProcess, requireEtcd, startEtcd } from './kvstore/etcd/support/etcd-process.ts';

const FOLDER = fileURLToPath(new URL('../examples/library', import.meta.url));
const PROGRAMS = readdirSync(FOLDER).filter((name) => name.endsWith('.ts'));

/** The programs with `src`, bundled before the tests. */
const BUNDLED = fileURLToPath(new URL('../dist-test/examples', import.meta.url));

/** A program of `examples/library`. */
class Program {
  readonly #child: ChildProcess;
  readonly #ended: Promise<unknown>;
  output = '';

  constructor(name: string, ...words: readonly string[]) {
    const threads = words[0] === '--workers' ? Number(words[1]) : 0;
    // Threads load tsx themselves, so a program with threads runs as by a user.
    const program =
      threads > 0 ? ['--import', 'tsx', join(FOLDER, name)] : [join(BUNDLED, name.replace('.ts', '.js'))];
    const child = spawn(process.execPath, [...program, ...words]);
    onTestFinished(() => void child.kill('SIGKILL'));
    this.#child = child;
    this.#ended = once(child, 'close');
    for (const stream of [child.stdout, child.stderr])
      stream.setEncoding('utf8').on('data', (text: string) => {
        this.output += text;
      });
  }

  /** Resolves when it has printed this. */
  async shows(text: string): Promise<void> {
    while (!this.output.includes(text)) {
      const printed = once(this.#child.stdout ?? this.#child, 'data').then(() => true);
      if (!(await Promise.race([printed, this.#ended.then(() => false)]))) break;
    }
    expect(this.output).toContain(text);
  }

  /** Writes the parts to its standard input, and closes it. */
  feed(...parts: readonly Uint8Array[]): void {
    for (const part of parts) this.#child.stdin?.write(part);
    this.#child.stdin?.end();
  }

  /** Asks it to end. */
  stop(): void {
    this.#child.kill('SIGTERM');
  }

  /** Resolves to its output when it has ended with status 0. */
  async end(): Promise<string> {
    await this.#ended;
    expect({ status: this.#child.exitCode, output: this.output }).toEqual({ status: 0, output: this.output });
    return this.output;
  }
}

let etcd: EtcdProcess | undefined;

beforeAll(async () => {
  requireEtcd();
  const programs = PROGRAMS.map((name) => join(FOLDER, name));
  [[etcd]] = await Promise.all([startEtcd(), bundle(programs, BUNDLED)]);
});

afterAll(() => etcd?.dispose());

/** Three flow records: two that end in the future, and one whose time is not in the history. */
function flowRecords(): Uint8Array {
  const records = new Uint8Array(48);
  const later = [255, 255, 255, 255];
  records.set([10, 1, 2, 3, 10, 1, 9, 9, 0, 0, 4, 0, ...later]);
  records.set([8, 8, 8, 8, 10, 1, 2, 3, 0, 0, 0, 64, ...later], 16);
  records.set([8, 8, 8, 8, 10, 1, 2, 3, 0, 0, 0, 65, 0, 0, 0, 1], 32);
  return records;
}

it('flow-enricher names both ends of flows, wherever the stream is cut', async () => {
  const records = flowRecords();
  const program = new Program('flow-enricher.ts');
  program.feed(records.subarray(0, 5), records.subarray(5, 17), records.subarray(17), new Uint8Array(3));
  expect(await program.end()).toBe(
    [
      '10.1.2.3 (shop/checkout-0) -> 10.1.9.9 (identity 900): 1024 bytes',
      '8.8.8.8 (world) -> 10.1.2.3 (shop/checkout-0): 64 bytes',
      '8.8.8.8 (world?) -> 10.1.2.3 (shop/checkout-0?): 65 bytes',
      '3 bytes at the end are no whole record',
      '',
    ].join('\n'),
  );
});

it('flow-enricher --workers names identities in the order of the stream', async () => {
  const rounds = 20_000; // several chunks of a pipe
  const stream = Buffer.concat(Array.from({ length: rounds }, flowRecords));
  const program = new Program('flow-enricher.ts', '--workers', '2');
  program.feed(stream, new Uint8Array(3));
  const lines = [
    '10.1.2.3 (identity 66000) -> 10.1.9.9 (identity 900): 1024 bytes',
    '8.8.8.8 (world) -> 10.1.2.3 (identity 66000): 64 bytes',
    '8.8.8.8 (world) -> 10.1.2.3 (identity 66000): 65 bytes',
    '',
  ].join('\n');
  expect(await program.end()).toBe(`${lines.repeat(rounds)}3 bytes at the end are no whole record\n`);
});

it('flow-enricher names a wrong number of workers', async () => {
  const program = new Program('flow-enricher.ts', '--workers', '2x');
  await program.shows('--workers: invalid number 2x: use 0 to 64');
});

it('node-handler keeps routes after a failed call', async () => {
  expect(await new Program('node-handler.ts').end()).toBe(
    [
      'route replace 10.1.1.0/24 via 192.168.0.1',
      'update of west/n1 has failed, the device is busy: tried again',
      'route delete 10.1.1.0/24 via 192.168.0.1',
      'route replace 10.1.9.0/24 via 192.168.0.1',
      'route delete 10.1.9.0/24 via 192.168.0.1',
      '',
    ].join('\n'),
  );
});

it('service-resolver prefers local backends, and uses those of other clusters if there is none', async () => {
  expect(await new Program('service-resolver.ts').end()).toBe(
    [
      'with a backend here: 10.1.0.5:8080 in west',
      'while none is ready here: 10.2.0.5:8080 in east',
      'without the other cluster: no backend',
      '172.20.7.7:80 is shop/checkout, cluster-ip',
      '',
    ].join('\n'),
  );
});

it('own-source lists the entries of a store that is no etcd, and follows its changes', async () => {
  expect(await new Program('own-source.ts').end()).toBe(
    'create cilium/state/ip/v1/default/10.3.0.1\ncreate cilium/state/ip/v1/default/10.3.0.2\n',
  );
});

it('publisher publishes a cluster that follow-mesh follows, over a real etcd', async () => {
  const url = etcd?.url ?? '';
  const publisher = new Program('publisher.ts', url);
  await publisher.shows(`cluster west is published at ${url}\n`);
  const folder = temporaryFolder({ west: `endpoints: ["${url}"]\n` });
  const follower = new Program('follow-mesh.ts', folder);
  await follower.shows('according to west\n');
  follower.stop();
  expect((await follower.end()).split('\n').slice(-3)).toEqual([
    'west: 2 prefixes, 1 nodes',
    '10.1.0.5 runs on 192.168.0.1, according to west',
    '',
  ]);
  expect(follower.output).toContain('upsert 10.1.0.5/32: identity 65536, pod shop/web-0\n');
  publisher.stop();
  expect(await publisher.end()).toBe(`cluster west is published at ${url}\n`);
});

it('each program is in the list, and the list contains no other', () => {
  const list = readFileSync(join(FOLDER, 'README.md'), 'utf8');
  const listed = [...list.matchAll(/^\| \[`([\w-]+\.ts)`\]\(\1\)/gm)].map(([, name = '']) => name);
  expect(listed.sort()).toEqual([...PROGRAMS].sort());
  const tests = readFileSync(fileURLToPath(import.meta.url), 'utf8');
  expect(PROGRAMS.filter((name) => !tests.includes(`Program('${name}'`))).toEqual([]);
});
