import { createServer, type RequestListener } from 'node:http';
import { join } from 'node:path';
import { describe, expect, it, onTestFinished } from 'vitest';
import { ApiServer } from '../../src/api/server/api-server.ts';
import { temporaryFolder } from '../agent/support/temporary-folder.ts';
import { testApp } from '../api/support/test-app.ts';
import { hangingAgent } from './support/hanging-agent.ts';
import { dpcache } from './support/run.ts';

/** Serves an agent with one own claim. Returns its operand. */
async function agent(identity: number): Promise<string> {
  const { app, model } = testApp();
  model.ipcache.upsert('10.7.0.1', { identity, source: 'kvstore' });
  const socket = join(temporaryFolder({}), 'agent.sock');
  const server = new ApiServer({ app, socket });
  await server.start();
  onTestFinished(() => server.stop());
  return `unix:${socket}`;
}

/** Serves HTTP at a socket. Returns its operand. */
async function served(onRequest: RequestListener): Promise<string> {
  const socket = join(temporaryFolder({}), 'other.sock');
  const server = createServer(onRequest);
  await new Promise<void>((resolve) => server.listen(socket, resolve));
  onTestFinished(() => void server.close());
  return `unix:${socket}`;
}

/** Serves the digests of an agent, and closes the connection of each later question. Returns its operand. */
async function dyingAgent(identity: number): Promise<string> {
  const { app, model } = testApp();
  model.ipcache.upsert('10.7.0.1', { identity, source: 'kvstore' });
  return served((request, response) => {
    if (request.url !== '/v1/digest') {
      response.destroy();
      return;
    }
    void Promise.resolve(app.request('/v1/digest'))
      .then((answer) => answer.text())
      .then((text) => response.setHeader('content-type', 'application/json').end(text));
  });
}

const REMEDY = 'check that this agent runs, and repeat the command';

describe('dpcache diff names the agent and the remedy', () => {
  it('if an agent dies during the comparison', async () => {
    const [alive, dying] = [await agent(7), await dyingAgent(8)];
    for (const operands of [
      [alive, dying],
      [dying, alive],
    ])
      expect(await dpcache('diff', ...operands)).toEqual({
        status: 1,
        stdout: '',
        stderr: `dpcache: ${dying}: the agent closed the connection before it answered; ${REMEDY}\n`,
      });
  });

  it('if an agent dies in the middle of an answer', async () => {
    const dying = await served((_, response) => {
      response.writeHead(200, { 'content-length': '20' });
      response.write('{', () => response.destroy());
    });
    const { status, stderr } = await dpcache('diff', await agent(7), dying);
    expect([status, stderr]).toEqual([1, `dpcache: ${dying}: the agent has stopped; ${REMEDY}\n`]);
  });

  it('if no agent runs, also when the other operand is a table', async () => {
    const none = `unix:${join(temporaryFolder({}), 'none.sock')}`;
    const table = join(temporaryFolder({ list: '[]' }), 'list');
    for (const operands of [
      [await agent(7), none],
      [none, table],
    ])
      expect(await dpcache('diff', ...operands)).toMatchObject({
        status: 1,
        stderr: `dpcache: ${none}: no process listens on this socket; ${REMEDY}\n`,
      });
  });

  it('if no agent of Cilium runs', async () => {
    const none = `cilium:${join(temporaryFolder({}), 'none.sock')}`;
    const { status, stderr } = await dpcache('diff', await agent(7), none);
    const why = 'no process listens on this socket; check the path, and run as root';
    expect([status, stderr]).toEqual([1, `dpcache: ${none}: ${why}\n`]);
  });

  it('if an agent never answers', async () => {
    const hanging = await hangingAgent();
    const late = 'no answer for 30 s; see the log and the load of this agent, and repeat the command';
    const table = join(temporaryFolder({ list: '[]' }), 'list');
    for (const operands of [
      [await agent(7), `unix:${hanging}`],
      [`unix:${hanging}`, table],
    ])
      expect(await dpcache('diff', ...operands)).toEqual({
        status: 1,
        stdout: '',
        stderr: `dpcache: unix:${hanging}: ${late}\n`,
      });
    const { stderr } = await dpcache('diff', await agent(7), `cilium:${hanging}`);
    expect(stderr).toBe(`dpcache: cilium:${hanging}: ${late}\n`);
  });

  it('if an agent refuses a question', async () => {
    const old = await served((_, response) => {
      response.writeHead(404, { 'content-type': 'application/problem+json' });
      response.end(JSON.stringify({ status: 404, code: 'not-found', detail: 'no such path' }));
    });
    const { status, stderr } = await dpcache('diff', await agent(7), old);
    expect([status, stderr]).toEqual([1, `dpcache: ${old}: no such path\n`]);
  });
});

describe('a document with other fields than expected', () => {
  const COMMANDS = [
    ...['ipcache list', 'ipcache list --count', 'ipcache get 10.0.0.1', 'ipcache lookup 10.0.0.1'],
    ...['history', 'service get a/b', 'node list -o json', 'whois x', 'clustermesh status', 'status --ready'],
    ...['config show', 'datapath diff', 'whatif remove-cluster x', 'monitor'],
  ];

  it.each(['{}', 'null'])(
    '%s ends each command with the process and the remedy (regression: a stack trace, or a count of undefined)',
    async (document) => {
      const operand = await served((request, response) => {
        const isStream = request.url?.startsWith('/v1/monitor') === true;
        response.setHeader('content-type', 'application/json');
        response.end(isStream ? `event: change\ndata: ${document}\n\n` : document);
      });
      const socket = operand.slice('unix:'.length);
      const remedy = 'use the dpcache version of that process\n';
      for (const command of COMMANDS) {
        const { status, stdout, stderr } = await dpcache(...command.split(' '), '--socket', socket);
        expect([command, status, stdout]).toEqual([command, 1, '']);
        expect(stderr.startsWith(`dpcache: ${socket}: unexpected document (`)).toBe(true);
        expect(stderr.endsWith(`): ${remedy}`)).toBe(true);
      }
      const { status, stderr } = await dpcache('diff', operand, operand);
      expect([status, stderr.startsWith(`dpcache: ${operand}, ${operand}: unexpected document (`)]).toEqual([
        1,
        true,
      ]);
    },
  );
});
