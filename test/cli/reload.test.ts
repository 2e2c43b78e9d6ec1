import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { runCommand } from '../../src/cli/program.ts';
import { temporaryFolder } from '../agent/support/temporary-folder.ts';
import { dpcache, nothing } from './support/run.ts';
import { type StartedProcess, startProcess } from './support/start-process.ts';

function service(name: string): string {
  return `apiVersion: v1\nkind: Service\nmetadata: {name: ${name}}\nspec: {clusterIP: 10.96.0.1, ports: [{port: 80}]}\n`;
}

interface RunningAgent extends StartedProcess {
  readonly services: () => Promise<readonly string[]>;
}

/** Runs an agent that has this configuration file and no other settings. */
function startAgent(config: string, socket: string): RunningAgent {
  return {
    ...startProcess(['agent', '--config', config]),
    services: async () => {
      const { stdout } = await dpcache('service', 'list', '-o', 'json', '--socket', socket);
      return (JSON.parse(stdout) as readonly { name: string }[]).map(({ name }) => name);
    },
  };
}

const DONE = 'Reloaded settings and manifests.';

it('SIGHUP reloads the log level and manifests, and reports settings that it cannot reload', async () => {
  const folder = temporaryFolder({
    'a.yaml': `${service('one')}---\n${service('two')}`,
    'b.yaml': service('three'),
  });
  const file = (name: string): string => join(folder, name);
  const configure = (more: string, manifests: string): void =>
    writeFileSync(file('c.yaml'), `socket: ${file('s.sock')}\nmanifests: [${manifests}]\n${more}`);
  const rate = (qps: number): string => `clustermesh-config: ${folder}\nkvstore-opt: [etcd.qps=${qps}]\n`;
  configure(rate(5), file('a.yaml'));
  const agent = startAgent(file('c.yaml'), file('s.sock'));
  await agent.shows('Changes follow');
  expect(await agent.services()).toEqual(['one', 'two']);

  // An object that a file no longer contains is removed.
  writeFileSync(file('a.yaml'), service('two'));
  configure(`cluster: other\nlog-level: error\n${rate(6)}`, `${file('a.yaml')}, ${file('b.yaml')}`);
  agent.hangup();
  await agent.shows(DONE);
  expect(await agent.services()).toEqual(['three', 'two']);
  expect(agent.written()).not.toContain('cluster has changed'); // a warning, and the new level is error

  configure(`cluster: other\n${rate(7)}`, `${file('a.yaml')}, ${file('b.yaml')}`);
  agent.hangup();
  await agent.shows(DONE, 2);
  expect(agent.written()).toContain('warn  cluster has changed: restart to apply it');
  expect(agent.written()).not.toContain('kvstore-opt has changed');

  // A limit that the file no longer contains ends.
  configure(`cluster: other\nclustermesh-config: ${folder}\n`, file('a.yaml'));
  agent.hangup();
  await agent.shows(DONE, 3);
  const { stdout } = await dpcache('history', '-o', 'json', '--socket', file('s.sock'));
  expect(stdout).toContain('etcd.qps 7 → default');
});

it('SIGHUP rejects settings that contradict the followed sources (regression: two sources of services)', async () => {
  const folder = temporaryFolder({ 'a.yaml': service('one'), 'b.yaml': service('two') });
  const file = (name: string): string => join(folder, name);
  const right = `socket: ${file('s.sock')}\nk8s-load: ${file('a.yaml')}\n`;
  writeFileSync(file('c.yaml'), right);
  const agent = startAgent(file('c.yaml'), file('s.sock'));
  await agent.shows('Changes follow');
  writeFileSync(file('c.yaml'), `${right}manifests: ${file('b.yaml')}\n`);
  agent.hangup();
  await agent.shows('cannot reload settings: --config');
  expect(agent.written()).toContain('remove services from --k8s-watch');
  expect(await agent.services()).toEqual(['one']);
});

it('SIGHUP removes nothing because of an invalid or half-written file', async () => {
  const folder = temporaryFolder({ 'a.yaml': `${service('one')}---\n${service('two')}` });
  const file = (name: string): string => join(folder, name);
  const right = `socket: ${file('s.sock')}\nmanifests: ${file('a.yaml')}\n`;
  writeFileSync(file('c.yaml'), right);
  const agent = startAgent(file('c.yaml'), file('s.sock'));
  await agent.shows('Changes follow');

  writeFileSync(file('c.yaml'), 'log-level: loud\n');
  agent.hangup();
  await agent.shows('cannot reload settings: --config');
  expect(agent.written()).toContain('log-level: "loud": Allowed choices are');

  writeFileSync(file('c.yaml'), right);
  writeFileSync(file('a.yaml'), `${service('three')}---\nkind: Service\nmetadata: {`);
  agent.hangup();
  await agent.shows(DONE);
  expect(agent.written()).toContain('--manifests: kept 2 missing objects, because a part is invalid');
  expect(await agent.services()).toEqual(['one', 'three', 'two']);

  writeFileSync(file('a.yaml'), service('three'));
  agent.hangup();
  await agent.shows(DONE, 2);
  expect(await agent.services()).toEqual(['three']);
});

it('a failed reload changes nothing (regression: log level and rates had changed)', async () => {
  const folder = temporaryFolder({ 'a.yaml': service('one'), 'b.yaml': service('two') });
  const file = (name: string): string => join(folder, name);
  const configure = (more: string): void =>
    writeFileSync(file('c.yaml'), `socket: ${file('s.sock')}\nmanifests: [${file('a.yaml')}]\n${more}`);
  configure('');
  const agent = startAgent(file('c.yaml'), file('s.sock'));
  await agent.shows('Changes follow');

  writeFileSync(file('a.yaml'), `${service('one')}---\n${service('three')}`);
  const missing = `manifests: [${file('a.yaml')}, ${file('missing.yaml')}]\nlog-level: silent\ncluster: other\n`;
  writeFileSync(file('c.yaml'), `socket: ${file('s.sock')}\n${missing}`);
  agent.hangup();
  await agent.shows('cannot reload settings: --manifests');
  expect(await agent.services()).toEqual(['one']);

  configure('cluster: other\n');
  agent.hangup();
  await agent.shows(DONE);
  expect(agent.written()).toContain('warn  cluster has changed: restart to apply it');
  expect(await agent.services()).toEqual(['one', 'three']);
});

it('SIGHUP reloads the log level of an operator (regression: it ended the operator)', async () => {
  const folder = temporaryFolder({ 'nodes.yaml': 'apiVersion: v1\nkind: Node\nmetadata: {name: n}\n' });
  const config = join(folder, 'c.yaml');
  const words = ['operator', '--config', config, '--k8s-load', join(folder, 'nodes.yaml'), '--no-socket'];
  writeFileSync(config, 'log-level: warn\n');
  const operator = startProcess(words);
  await operator.subscribed();
  writeFileSync(config, 'log-level: info\ncluster: other\n');
  operator.hangup();
  await operator.shows('info  reloaded settings');
  expect(operator.written()).toContain('warn  cluster has changed: restart to apply it');
});

it('SIGHUP keeps settings of the environment, which override the file', async () => {
  const folder = temporaryFolder({ 'nodes.yaml': 'apiVersion: v1\nkind: Node\nmetadata: {name: n}\n' });
  const config = join(folder, 'c.yaml');
  const words = ['operator', '--config', config, '--k8s-load', join(folder, 'nodes.yaml'), '--no-socket'];
  writeFileSync(config, 'log-level: error\n');
  const operator = startProcess(words, { DPCACHE_LOG_LEVEL: 'info', DPCACHE_CLUSTER: 'atlantic' });
  await operator.subscribed();
  writeFileSync(config, 'log-level: error\ncluster: other\n');
  operator.hangup();
  await operator.shows('info  reloaded settings');
  expect(operator.written()).not.toContain('cluster has changed');
});

it('--watch prints a list again when it has changed, and ends with the agent', async () => {
  const folder = temporaryFolder({ 'a.yaml': service('one') });
  const file = (name: string): string => join(folder, name);
  writeFileSync(file('c.yaml'), `socket: ${file('s.sock')}\nmanifests: ${file('a.yaml')}\n`);
  const agent = startAgent(file('c.yaml'), file('s.sock'));
  await agent.shows('Changes follow');
  const stop = new AbortController();
  let shown = '';
  const stdout = {
    write: (text: string) => {
      shown += text;
      if (shown.endsWith('\n\ndefault/two\n')) stop.abort();
      else if (shown === 'default/one\n') {
        writeFileSync(file('a.yaml'), service('two'));
        agent.hangup();
      }
    },
  };
  const words = ['service', 'list', '--watch', '-o', 'name', '--socket', file('s.sock')];
  const errors: string[] = [];
  const stderr = { write: (text: string) => errors.push(text) };
  const status = await runCommand(words, { stdout, stderr, stdin: nothing(), env: {}, signal: stop.signal });
  expect({ status, errors }).toEqual({ status: 0, errors: [] });
  // A reload adds and removes services in different turns, so the list may show both.
  expect(shown.replace('default/one\ndefault/two\n\n', '')).toBe('default/one\n\ndefault/two\n');
});
