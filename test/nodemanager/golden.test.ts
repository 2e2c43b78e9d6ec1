import { describe, expect, it } from 'vitest';
import type { IPCacheChange } from '../../src/ipcache/types.ts';
import type { Node } from '../../src/nodemanager/node.ts';
import type { NodeHandler } from '../../src/nodemanager/node-handler.ts';
import type { NodeManagerOptions } from '../../src/nodemanager/node-manager-options.ts';
import { settled } from './support/deferred-handler.ts';
import { addresses, fresh, node } from './support/node-fixtures.ts';

/** A node in few words: where it is from and where it can be reached. */
function words({ source, addresses: of, ipv4HealthIP, encryptionKey }: Node): string {
  const parts = [source, ...of.map(({ ip }) => ip)];
  if (ipv4HealthIP !== undefined) parts.push(`health ${ipv4HealthIP}`);
  if (encryptionKey > 0) parts.push(`key ${encryptionKey}`);
  return `(${parts.join(' ')})`;
}

function changeWords({ kind, prefix, new: entry }: IPCacheChange): string {
  if (entry === undefined) return `ipcache  ${kind} ${prefix}`;
  const { identity, hostIP, encryptKey } = entry;
  return `ipcache  ${kind} ${prefix}: identity ${identity}${hostIP === undefined ? '' : ` via ${hostIP}`}${encryptKey === 0 ? '' : ` key ${encryptKey}`}`;
}

/** Records the inputs and events of a manager as a readable text. `vitest -u` rewrites the files. */
class Transcript {
  readonly #lines: string[] = [];
  readonly #rig: ReturnType<typeof fresh>;
  /** What the handler does with a call; by default it works. */
  answer: (call: string) => void | Promise<void> = () => {};

  constructor(title: string, options: Partial<NodeManagerOptions> = {}) {
    this.#rig = fresh({
      onHandlerFault: ({ retryInMs }) => this.#lines.push(`    handler  failed; again in ${retryInMs} ms`),
      ...options,
    });
    this.#lines.push(title, '='.repeat(title.length));
    this.#rig.ipcache.subscribe({
      onChanges: (changes) => this.#lines.push(...changes.map((change) => `    ${changeWords(change)}`)),
    });
    this.#rig.manager.subscribe(this.#handler());
  }

  /** Adds an input as a line, and its events as indented lines below. */
  async step(what: string, happens: (rig: ReturnType<typeof fresh>) => unknown): Promise<void> {
    this.#lines.push('', what);
    const before = this.#lines.length;
    const outcome = happens(this.#rig);
    await settled();
    if (typeof outcome === 'string') this.#lines.push(`    → ${outcome}`);
    if (this.#lines.length === before) this.#lines.push('    (nothing to tell)');
  }

  toString(): string {
    return `${this.#lines.join('\n')}\n`;
  }

  #handler(): NodeHandler {
    const call = (said: string): void | Promise<void> => {
      this.#lines.push(`    handler  ${said}`);
      return this.answer(said);
    };
    return {
      nodeAdd: (added) => call(`add ${added.fullName} ${words(added)}`),
      nodeUpdate: (old, now) => call(`update ${now.fullName} ${words(old)} → ${words(now)}`),
      nodeDelete: (deleted) => call(`delete ${deleted.fullName} ${words(deleted)}`),
    };
  }
}

async function expectGolden(story: Transcript, name: string): Promise<void> {
  await expect(story.toString()).toMatchFileSnapshot(`../golden/nodemanager/${name}.txt`);
}

describe('golden transcripts of the node manager', () => {
  it('the life of a node', async () => {
    const story = new Transcript('The life of a node, from several sources');
    const at = (ip: string, source: 'k8s' | 'kvstore') =>
      node('a', {
        source,
        addresses: addresses(`InternalIP:${ip}`, 'CiliumInternalIP:10.1.0.1'),
        ipv4HealthIP: '10.1.0.254',
      });
    await story.step('Kubernetes announces it', ({ manager }) =>
      manager.nodeUpdated(at('192.168.0.1', 'k8s')),
    );
    await story.step('and says the same again', ({ manager }) =>
      manager.nodeUpdated(at('192.168.0.1', 'k8s')),
    );
    await story.step('the kvstore knows a newer address', ({ manager }) =>
      manager.nodeUpdated(at('192.168.0.2', 'kvstore')),
    );
    await story.step('Kubernetes goes on with the old one', ({ manager }) =>
      manager.nodeUpdated({ ...at('192.168.0.1', 'k8s'), bootID: 'later' }),
    );
    await story.step('the kvstore lets it go: what Kubernetes says is in force again', ({ manager }) =>
      manager.nodeDeleted({ cluster: 'east', name: 'a', source: 'kvstore' }),
    );
    await story.step('encryption is switched on', ({ manager }) => manager.configure({ encryption: true }));
    await story.step('a source that never announced it lets it go', ({ manager }) =>
      manager.nodeDeleted({ cluster: 'east', name: 'a', source: 'local' }),
    );
    await story.step('Kubernetes lets it go', ({ manager }) =>
      manager.nodeDeleted({ cluster: 'east', name: 'a', source: 'k8s' }),
    );
    await expectGolden(story, 'life-of-a-node');
  });

  it('held back', async () => {
    const story = new Transcript('A pod has the address of a node');
    const a = (bootID: string) =>
      node('a', {
        source: 'k8s',
        addresses: addresses('InternalIP:10.0.0.1', 'ExternalIP:10.0.0.2'),
        bootID,
      });
    const pod = { identity: 1000, source: 'kvstore', owner: 'pods' } as const;
    await story.step('the pod takes 10.0.0.1', ({ ipcache }) => ipcache.upsert('10.0.0.1', pod));
    await story.step('node a announces 10.0.0.1 and 10.0.0.2: handlers have to wait', ({ manager }) =>
      manager.nodeUpdated(a('1')),
    );
    await story.step('the pod goes: they are told', ({ ipcache }) => ipcache.delete('10.0.0.1', pod));
    await story.step('the pod takes the address of a node that is known', ({ ipcache }) =>
      ipcache.upsert('10.0.0.1', pod),
    );
    await story.step('the node reboots: handlers have to wait', ({ manager }) => manager.nodeUpdated(a('2')));
    await story.step('the kvstore announces the node too, as strong as the pod', ({ manager }) =>
      manager.nodeUpdated({ ...a('2'), source: 'kvstore' }),
    );
    await expectGolden(story, 'held-back');
  });

  it('a replacement', async () => {
    const story = new Transcript('A new node takes over the address of an old one');
    const at = (name: string, ...ips: string[]) =>
      node(name, { addresses: addresses(...ips.map((ip) => `InternalIP:${ip}`)) });
    await story.step('old has 10.0.0.1', ({ manager }) => manager.nodeUpdated(at('old', '10.0.0.1')));
    await story.step('new comes with the same address', ({ manager }) =>
      manager.nodeUpdated(at('new', '10.0.0.1')),
    );
    await story.step('old goes: the address stays', ({ manager }) =>
      manager.nodeDeleted({ cluster: 'east', name: 'old', source: 'kvstore' }),
    );
    await story.step('the cluster is removed', ({ manager }) =>
      String(manager.withdraw({ source: 'kvstore', cluster: 'east' })),
    );
    await expectGolden(story, 'replacement');
  });

  it('a handler that fails', async () => {
    const story = new Transcript('A handler fails, recovers, and catches up');
    const at = (ip: string) => node('a', { addresses: addresses(`InternalIP:${ip}`) });
    story.answer = () => {
      throw new Error('no netlink');
    };
    await story.step('a node is announced; the handler cannot', ({ manager }) =>
      manager.nodeUpdated(at('10.0.0.1')),
    );
    await story.step('it is tried again', ({ clock }) => clock.advance(50));
    await story.step('and again', ({ clock }) => clock.advance(100));
    story.answer = () => {};
    await story.step('the handler has recovered', ({ clock }) => clock.advance(200));
    story.answer = async () => {
      throw new Error('no netlink');
    };
    await story.step('the node moves; the handler fails later on', ({ manager }) =>
      manager.nodeUpdated(at('10.0.0.2')),
    );
    story.answer = () => {};
    await story.step('the node moves again: what may be half done is undone first', ({ manager }) =>
      manager.nodeUpdated(at('10.0.0.3')),
    );
    story.answer = async () => {
      throw new Error('no netlink');
    };
    await story.step('the node goes; the handler fails', ({ manager }) =>
      manager.nodeDeleted({ cluster: 'east', name: 'a', source: 'kvstore' }),
    );
    story.answer = () => {};
    await story.step('it comes back: the delete is finished first', ({ manager }) =>
      manager.nodeUpdated(at('10.0.0.4')),
    );
    await expectGolden(story, 'failing-handler');
  });
});
