import { EventEmitter } from 'node:events';
import { describe, expect, it } from 'vitest';
import { LogOutput, ProcessOutput } from '../../src/cli/process-output.ts';

/** A stream of a process whose reader is controlled by a test. */
class FakeStream extends EventEmitter {
  readonly written: string[] = [];
  isTTY: boolean | undefined;
  columns = 80;
  writableLength = 0;
  writableNeedDrain = false;

  write(text: string): boolean {
    this.written.push(text);
    return true;
  }

  /** Fails like a write to a closed pipe or a full disk. */
  fail(code: string | undefined, message = 'message'): void {
    this.emit('error', Object.assign(new Error(message), { code }));
  }
}

function outputTo(stream: FakeStream): { output: ProcessOutput; faults: string[] } {
  const faults: string[] = [];
  const output = new ProcessOutput(stream as unknown as NodeJS.WriteStream, {
    onClosed: () => faults.push('closed'),
    onFailed: (reason) => faults.push(reason),
  });
  return { output, faults };
}

describe('the output of a process', () => {
  it.each([
    ['EPIPE', 'closed'],
    ['ENOSPC', 'no space left on device'],
    ['EIO', 'input/output error'],
    ['EFBIG', 'the file is too large'],
    ['EBADF', 'message'],
    [undefined, 'message'],
  ])('after the error %s reports %j once, and writes nothing more', (code, fault) => {
    const stream = new FakeStream();
    const { output, faults } = outputTo(stream);
    output.write('a');
    stream.fail(code);
    stream.fail('ENOSPC');
    output.write('b');
    expect([stream.written, faults]).toEqual([['a'], [fault]]);
  });

  it('has the width of a terminal only', () => {
    const stream = new FakeStream();
    const { output } = outputTo(stream);
    expect([output.isTTY, output.columns]).toEqual([false, undefined]);
    stream.isTTY = true;
    stream.writableLength = 7;
    expect([output.isTTY, output.columns, output.writableLength]).toEqual([true, 80, 7]);
  });

  const never = new AbortController().signal;

  it.each([
    ['drain', (stream: FakeStream) => stream.emit('drain')],
    ['error', (stream: FakeStream) => stream.fail('EPIPE')],
    ['abort', (_: FakeStream, stop: AbortController) => stop.abort()],
  ])('is drained at %s, and leaves no listener behind', async (_, end) => {
    const stream = new FakeStream();
    const { output } = outputTo(stream);
    stream.writableNeedDrain = true;
    const stop = new AbortController();
    let isDrained = false;
    const drained = output.drained(stop.signal).then(() => {
      isDrained = true;
    });
    await Promise.resolve();
    expect(isDrained).toBe(false);
    end(stream, stop);
    await drained;
    expect([stream.listenerCount('drain'), stream.listenerCount('error')]).toEqual([0, 1]);
  });

  it('is drained at once if nothing waits, the stream has failed, or the process ends', async () => {
    const stream = new FakeStream();
    const { output } = outputTo(stream);
    await output.drained(never);
    stream.writableNeedDrain = true;
    await output.drained(AbortSignal.abort());
    stream.fail('EPIPE');
    await output.drained(never);
    expect(stream.listenerCount('drain')).toBe(0);
  });
});

it('a log drops lines while its reader is far behind, and then counts them once', () => {
  const stream = new FakeStream();
  const log = new LogOutput(outputTo(stream).output);
  log.write('a');
  stream.writableLength = (1 << 20) - 1;
  log.write('b');
  stream.writableLength = 1 << 20;
  log.write('c');
  log.write('d');
  stream.writableLength = 0;
  log.write('e');
  log.write('f');
  expect(stream.written).toEqual([
    'a',
    'b',
    'dpcache: dropped 2 log lines, because standard error is read too slowly\n',
    'e',
    'f',
  ]);
});
