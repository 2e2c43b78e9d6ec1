import { type ChildProcess, execFileSync, spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { closeSync, existsSync, openSync } from 'node:fs';
import { createServer as createHttp2Server } from 'node:http2';
import { type AddressInfo, createServer } from 'node:net';
import { join } from 'node:path';
import { Writable } from 'node:stream';
import { describe, expect, it, onTestFinished } from 'vitest';
import { ApiClient } from '../../src/api/api-client.ts';
import { LogOutput, ProcessOutput } from '../../src/cli/process-output.ts';
import { temporaryFolder } from '../agent/support/temporary-folder.ts';
import { PROGRAM } from './support/program.ts';
import { ATLANTIC, example } from './support/run.ts';

interface Process {
  readonly child: ChildProcess;
  /** Resolves once what the process has printed contains `text`. */
  readonly shows: (text: string) => Promise<void>;
  readonly output: () => { stdout: string; stderr: string };
}

function start(...words: readonly string[]): Process {
  const child = spawn(process.execPath, [PROGRAM, ...words], {
    stdio: ['ignore', 'pipe', 'pipe'],
    env: { ...process.env, XDG_RUNTIME_DIR: temporaryFolder({}) },
  });
  onTestFinished(() => void child.kill('SIGKILL'));
  const output = { stdout: '', stderr: '' };
  child.stdout.setEncoding('utf8').on('data', (text: string) => {
    output.stdout += text;
  });
  child.stderr.setEncoding('utf8').on('data', (text: string) => {
    output.stderr += text;
  });
  const shows = async (text: string): Promise<void> => {
    while (!output.stdout.includes(text)) await once(child.stdout, 'data');
  };
  return { child, shows, output: () => output };
}

const LIVE = ['agent', ...ATLANTIC, '--manifests', example('services.yaml')];

describe('a running agent', () => {
  it.each(['SIGINT', 'SIGTERM'] as const)(
    'stops cleanly on %s, in the middle of a script too, and writes no colours if its output is not a terminal',
    async (signal) => {
      const { child, shows, output } = start(...LIVE, '--play', example('changes.yaml'));
      await shows('Changes follow');
      child.kill(signal);
      const [status, killedBy] = await once(child, 'close');
      expect({ status, killedBy }).toEqual({ status: 0, killedBy: null });
      expect(output().stderr).toBe('');
      expect(output().stdout).not.toContain('\u001B');
      expect(output().stdout).toContain('339 prefixes, 12 nodes, 5 services with 156 backends');
    },
  );

  it('stops cleanly if a signal is repeated at once (regression: timeout(1) prevented the last checkpoint)', async () => {
    const repeat = `process.once('SIGTERM', () => setImmediate(() => process.kill(process.pid, 'SIGTERM')));`;
    const preload = `data:text/javascript,${encodeURIComponent(repeat)}`;
    const child = spawn(process.execPath, ['--import', preload, PROGRAM, ...LIVE, '--no-socket'], {
      stdio: ['ignore', 'pipe', 'ignore'],
    });
    onTestFinished(() => void child.kill('SIGKILL'));
    await once(child.stdout, 'data');
    child.kill('SIGTERM');
    expect(await once(child, 'exit')).toEqual([0, null]);
  });

  it.each(['a closed pipe', 'a full disk'])('goes on after SIGHUP, and when its log is %s', async (where) => {
    const folder = temporaryFolder({
      'services.yaml': 'kind: Service\napiVersion: v1\nmetadata: { name: 7 }\n',
    });
    const full = openSync('/dev/full', 'w');
    const child = spawn(
      process.execPath,
      [PROGRAM, 'agent', ...ATLANTIC, '--manifests', join(folder, 'services.yaml')],
      {
        stdio: ['ignore', 'pipe', where === 'a full disk' ? full : 'pipe'],
        env: { ...process.env, XDG_RUNTIME_DIR: folder },
      },
    );
    closeSync(full);
    onTestFinished(() => void child.kill('SIGKILL'));
    child.stderr?.destroy();
    let shown = '';
    child.stdout?.setEncoding('utf8').on('data', (text: string) => {
      shown += text;
    });
    const until = async (text: string): Promise<void> => {
      while (!shown.includes(text)) await once(child.stdout ?? child, 'data');
      shown = '';
    };
    await until('Changes follow');
    for (let i = 0; i < 3; i++) {
      child.kill('SIGHUP'); // each reload rejects the service again
      await until('Reloaded settings and manifests.');
    }
    const { ask } = new ApiClient(join(folder, 'dpcache.sock'), new AbortController().signal);
    expect(await ask('/v1/rejections')).toMatchObject({ total: expect.any(Number) });
    expect(((await ask('/v1/rejections')) as { total: number }).total).toBeGreaterThan(0);
    child.kill('SIGTERM');
    expect(await once(child, 'exit')).toEqual([0, null]);
  });
});

describe('a signal during the first wait', () => {
  it.each([
    ['agent', 0, ''], // a requested stop of a daemon
    ['status', 1, 'dpcache: interrupted before the initial sync was done\n'],
    ['agent --once', 1, 'dpcache: interrupted before the initial sync was done\n'],
  ])('ends %j without an empty report, with status %j', async (command, expected, stderr) => {
    const silent = createServer((socket) => socket.on('error', () => {})).listen(0, '127.0.0.1');
    onTestFinished(() => void silent.close());
    await once(silent, 'listening');
    const { port } = silent.address() as AddressInfo;
    const config = join(temporaryFolder({ own: `endpoints: ["http://127.0.0.1:${port}"]\n` }), 'own');
    const { child, output } = start(...command.split(' '), '--kvstore', 'etcd', '--kvstore-config', config);
    await once(silent, 'connection');
    child.kill('SIGTERM');
    const [status] = await once(child, 'close');
    expect({ status, ...output() }).toEqual({ status: expected, stdout: '', stderr });
  });
});

describe('a command that does not settle', () => {
  /** Starts a command and resolves when its read of a settings file hangs. */
  async function blocked(...command: readonly string[]) {
    const path = join(temporaryFolder({ 'a.yaml': 'cluster: a\n' }), 'a.yaml');
    const hang = `import fs from 'node:fs/promises';
      import { syncBuiltinESMExports } from 'node:module';
      fs.stat = () => {
        process.stderr.write('blocked');
        setInterval(() => {}, 1000);
        return new Promise(() => {});
      };
      syncBuiltinESMExports();`;
    const preload = `data:text/javascript,${encodeURIComponent(hang)}`;
    const child = spawn(process.execPath, ['--import', preload, PROGRAM, ...command, path], {
      stdio: ['ignore', 'ignore', 'pipe'],
    });
    onTestFinished(() => void child.kill('SIGKILL'));
    await once(child.stderr, 'data');
    return child;
  }

  it('ends on SIGTERM with status 1 (regression: config check never ended)', async () => {
    const child = await blocked('config', 'check');
    child.kill('SIGTERM');
    expect(await once(child, 'exit')).toEqual([1, null]);
  });

  it.each(['agent', 'operator', 'kvstoremesh'])(
    'ends on SIGTERM with status 0 if it is a daemon that is still loading: %s (regression: status 1 without a message)',
    async (daemon) => {
      const child = await blocked(daemon, '--config');
      child.kill('SIGTERM');
      expect(await once(child, 'exit')).toEqual([0, null]);
    },
  );

  it('ends immediately on a later signal', async () => {
    const child = await blocked('config', 'check');
    const timer = setInterval(() => void child.kill('SIGTERM'), 20);
    onTestFinished(() => clearInterval(timer));
    expect(await once(child, 'exit')).toEqual([null, 'SIGTERM']);
  });
});

describe('an input whose open(2) blocks', () => {
  it('does not prevent an agent from ending on SIGTERM (regression: process.exit waited for the thread)', async () => {
    const folder = temporaryFolder({});
    const [fifo, socket] = [join(folder, 'mesh.jsonl'), join(folder, 's.sock')];
    execFileSync('mkfifo', [fifo]);
    const { child } = start('agent', '--load', fifo, '--socket', socket);
    const { ask } = new ApiClient(socket, new AbortController().signal);
    const reads = { name: 'recorded mesh', state: 'running', waitsFor: [`reading --load ${fifo}`] };
    const steps = async (): Promise<unknown> => ((await ask('/v1/status')) as { steps: unknown }).steps;
    await expect.poll(steps).toContainEqual(expect.objectContaining(reads));
    child.kill('SIGTERM');
    expect(await once(child, 'exit')).toEqual([null, 'SIGTERM']);
  });
});

describe('a full disk', () => {
  it('causes one line on stderr and status 1, not a stack', () => {
    const full = openSync('/dev/full', 'w');
    onTestFinished(() => closeSync(full));
    const { status, stderr } = spawnSync(process.execPath, [PROGRAM, 'ipcache', 'list', ...ATLANTIC], {
      stdio: ['ignore', full, 'pipe'],
      encoding: 'utf8',
    });
    expect({ status, stderr }).toEqual({
      status: 1,
      stderr: 'dpcache: cannot write to standard output: no space left on device\n',
    });
  });
});

describe('output that fails while a command continues', () => {
  it('ends it with status 1, even if the command itself ends without an error', () => {
    const full = openSync('/dev/full', 'w');
    onTestFinished(() => closeSync(full));
    const { status, stderr } = spawnSync(process.execPath, [PROGRAM, ...LIVE, '--no-socket'], {
      stdio: ['ignore', full, 'pipe'],
      encoding: 'utf8',
    });
    expect({ status, stderr }).toEqual({
      status: 1,
      stderr: 'dpcache: cannot write to standard output: no space left on device\n',
    });
  });
});

describe('a reader that ends before the list does', () => {
  it('ends the list with status 0', async () => {
    const list = start('ipcache', 'list', '-o', 'json', ...ATLANTIC);
    list.child.stdout?.once('data', () => list.child.stdout?.destroy());
    const [status] = await once(list.child, 'exit');
    expect([status, list.output().stderr]).toEqual([0, '']);
  });
});

describe('an agent whose log is JSON', () => {
  it('writes no text to stdout', async () => {
    const { child, output } = start(...LIVE, '--log-format', 'json', '--log-level', 'info');
    await expect.poll(() => output().stderr).toContain('Status: dpcache status');
    child.kill('SIGTERM');
    await once(child, 'close');
    expect(output().stdout).toBe('');
    for (const line of output().stderr.trimEnd().split('\n')) expect(JSON.parse(line)).toHaveProperty('msg');
  });
});

describe('a reader that reads nothing', () => {
  it('does not prevent the process from ending on SIGTERM', async () => {
    const { child } = start('ipcache', 'list', ...ATLANTIC, '-o', 'json');
    child.stdout?.pause();
    await once(child.stdout ?? child, 'readable');
    child.kill('SIGTERM');
    const [status, killedBy] = await once(child, 'exit');
    // The process may have been about to exit and have no signal handlers any more.
    expect([
      { status: 0, killedBy: null },
      { status: null, killedBy: 'SIGTERM' },
    ]).toContainEqual({ status, killedBy });
  });

  it('loses log lines, and receives their number later', () => {
    const written: string[] = [];
    const reader = { writableLength: 0, write: (text: string): number => written.push(text) };
    const log = new LogOutput(reader);
    log.write('one\n');
    reader.writableLength = 1 << 20;
    log.write('two\n');
    log.write('three\n');
    reader.writableLength = 0;
    log.write('four\n');
    log.write('five\n');
    expect(written).toEqual([
      'one\n',
      'dpcache: dropped 2 log lines, because standard error is read too slowly\n',
      'four\n',
      'five\n',
    ]);
  });
});

describe('a stream that fails', () => {
  it('wakes a writer that waits for its reader, once', async () => {
    const stream = new Writable({ highWaterMark: 1, write: () => {} });
    const reasons: string[] = [];
    const output = new ProcessOutput(stream as NodeJS.WriteStream, {
      onClosed: () => reasons.push('closed'),
      onFailed: (why) => reasons.push(why),
    });
    output.write('more than one byte');
    const drained = output.drained(new AbortController().signal);
    stream.destroy(Object.assign(new Error('no room'), { code: 'ENOSPC' }));
    await drained;
    expect(reasons).toEqual(['no space left on device']);
    expect([stream.listenerCount('drain'), stream.listenerCount('error')]).toEqual([0, 1]);
    await output.drained(new AbortController().signal);
  });
});

describe('a reader that closes the pipe', () => {
  it('ends a command without an error', async () => {
    const { child, output } = start('ipcache', 'list', ...ATLANTIC, '-o', 'json');
    child.stdout?.destroy();
    const [status] = await once(child, 'close');
    expect({ status, stderr: output().stderr }).toEqual({ status: 0, stderr: '' });
  });
});

describe('SIGHUP', () => {
  it('does not end an agent that is still loading (regression: ended by the signal), and is not lost', async () => {
    const folder = temporaryFolder({
      // Sends the signal as soon as the program handles signals.
      'hangup.mjs':
        "process.on('newListener', (name) => name === 'SIGTERM' && setImmediate(() => process.kill(process.pid, 'SIGHUP')));\n",
    });
    const child = spawn(
      process.execPath,
      ['--import', join(folder, 'hangup.mjs'), PROGRAM, ...LIVE, '--socket', join(folder, 's.sock')],
      { stdio: ['ignore', 'pipe', 'ignore'] },
    );
    onTestFinished(() => void child.kill('SIGKILL'));
    const exit = once(child, 'exit');
    let shown = '';
    for await (const text of child.stdout.setEncoding('utf8')) {
      shown += text;
      if (shown.includes('Reloaded settings and manifests.')) break;
    }
    child.kill('SIGTERM');
    expect(await exit).toEqual([0, null]);
  });

  it('ends a question to an operator that does not answer (regression: ignored)', async () => {
    const socket = join(temporaryFolder({}), 's.sock');
    const server = createServer();
    onTestFinished(() => void server.close());
    await new Promise<void>((resolve) => void server.listen(socket, resolve));
    const child = spawn(process.execPath, [PROGRAM, 'operator', 'status', '--socket', socket]);
    onTestFinished(() => void child.kill('SIGKILL'));
    const exit = once(child, 'exit');
    await once(server, 'connection');
    child.kill('SIGHUP');
    expect(await exit).toEqual([null, 'SIGHUP']);
  });

  it('does not end an operator or a kvstoremesh (regression: status 129, and the socket was left)', async () => {
    const folder = temporaryFolder({
      'nodes.yaml': 'apiVersion: v1\nkind: Node\nmetadata: {name: n}\n',
      own: 'endpoints: ["http://127.0.0.1:1"]\n',
    });
    const commands = [
      ['operator', '--k8s-load', join(folder, 'nodes.yaml')],
      ['kvstoremesh', '--kvstore-config', join(folder, 'own'), '--clustermesh-config', folder],
    ];
    for (const words of commands) {
      const socket = join(folder, `${words[0]}.sock`);
      const { child } = start(...words, '--socket', socket);
      const { ask } = new ApiClient(socket, new AbortController().signal);
      await expect.poll(() => ask('/v1/status')).toBeDefined();
      child.kill('SIGHUP');
      child.kill('SIGTERM');
      expect([words[0], await once(child, 'exit')]).toEqual([words[0], [0, null]]);
      expect(existsSync(socket)).toBe(false);
    }
  });
});

it('writes no header of a server to stderr (regression: control characters of an etcd, outside of the log)', async () => {
  const server = createHttp2Server().on('stream', (stream) => {
    const headers = { ':status': 200, 'content-type': 'application/grpc', 'x-a': '\u009b31m' };
    stream.respond({ ...headers, 'grpc-status': 7 }, { endStream: true });
  });
  onTestFinished(() => void server.close());
  await once(server.listen(0, '127.0.0.1'), 'listening');
  const { port } = server.address() as AddressInfo;
  const folder = temporaryFolder({ far: `endpoints: ["http://127.0.0.1:${port}"]` });
  const { child, output } = start('clustermesh', 'troubleshoot', '--clustermesh-config', folder);
  await once(child, 'close');
  expect(output().stdout).toContain('cluster far');
  expect(output().stderr).toBe('');
});
