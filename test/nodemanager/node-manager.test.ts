import { describe, expect, it } from 'vitest';
import { type NodeRecord, RecordingNodeHandler } from '../datapath/support/recording.ts';
import { addresses, fresh, node } from './support/node-fixtures.ts';

/** Records calls as short words: `add a`, `update a`, `delete a`. */
function recorder(): { readonly handler: RecordingNodeHandler; take(): string[] } {
  const words: string[] = [];
  const handler = new RecordingNodeHandler((record: NodeRecord) => {
    if ('node' in record) words.push(`${record.kind} ${record.node.name}`);
  });
  return { handler, take: () => words.splice(0) };
}

describe('the local node with localNodeIsHost', () => {
  it('has identity host, whichever source announces it, as in Cilium; other nodes have remote-node', () => {
    const { manager, ipcache } = fresh({ localNodeIsHost: true });
    for (const source of ['k8s', 'custom-resource', 'kvstore', 'local'] as const) {
      manager.nodeUpdated(node('me', { source, addresses: addresses('InternalIP:192.168.0.9') }));
      expect([source, ipcache.get('192.168.0.9')?.identity]).toEqual([source, 1]);
    }
    manager.nodeUpdated(node('other', { source: 'k8s', addresses: addresses('InternalIP:192.168.0.8') }));
    expect(ipcache.get('192.168.0.8')?.identity).toBe(6);
  });

  it.each(['custom-resource', 'kvstore', 'clustermesh'] as const)(
    'owns its addresses and is announced, though a replaced node with source %s has them, too (regression: the address was remote-node)',
    (source) => {
      for (const retainOverruled of [true, false]) {
        const { manager, ipcache } = fresh({ localNodeIsHost: true, retainOverruled });
        const { handler, take } = recorder();
        manager.subscribe(handler);
        const fields = { addresses: addresses('InternalIP:192.168.0.9'), ipv4HealthIP: '10.0.0.9' };
        const identities = () => ['192.168.0.9', '10.0.0.9'].map((ip) => ipcache.get(ip)?.identity);
        manager.nodeUpdated(node('before', { source, ...fields }));
        manager.nodeUpdated(node('me', { source: 'k8s', ...fields }));
        expect([identities(), take()]).toEqual([
          [1, 4],
          ['add before', 'add me'],
        ]);
        manager.nodeUpdated(node('before', { source, ...fields, bootID: 'x' }));
        expect(identities()).toEqual([1, 4]);
        manager.nodeUpdated(node('me', { source: 'kvstore', ...fields }));
        expect(identities()).toEqual([1, 4]);
        manager.nodeDeleted({ cluster: 'east', name: 'me', source: 'kvstore' });
        if (!retainOverruled) manager.nodeUpdated(node('me', { source: 'k8s', ...fields }));
        expect(identities()).toEqual([1, 4]);
        manager.nodeDeleted({ cluster: 'east', name: 'me', source: 'k8s' });
        expect(identities()).toEqual([6, 4]);
        manager.nodeDeleted({ cluster: 'east', name: 'before', source });
        expect(ipcache.size).toBe(0);
      }
    },
  );

  it.each(['169.254.23.0', 'fe80::1'])(
    'shares the link-local router address %s with other nodes, which are announced (regression: none were)',
    (router) => {
      const { manager, ipcache } = fresh({ localNodeIsHost: true });
      const { handler, take } = recorder();
      manager.subscribe(handler);
      const shared = (internal: string) => addresses(`InternalIP:${internal}`, `CiliumInternalIP:${router}`);
      manager.nodeUpdated(node('me', { source: 'k8s', addresses: shared('192.168.0.9') }));
      manager.nodeUpdated(node('other', { source: 'custom-resource', addresses: shared('192.168.0.8') }));
      manager.nodeUpdated(node('remote', { source: 'clustermesh', addresses: shared('192.168.1.8') }));
      expect(take()).toEqual(['add me', 'add other', 'add remote']);
      expect(ipcache.get(router)?.identity).toBe(1);
      expect(manager.status().heldBack).toEqual([]);
    },
  );
});

describe('a node', () => {
  it('puts its addresses into the ipcache under its own name, and is announced to handlers', () => {
    const { manager, ipcache } = fresh();
    const { handler, take } = recorder();
    manager.subscribe(handler);
    const outcome = manager.nodeUpdated(
      node('a', {
        addresses: addresses('InternalIP:192.168.0.1', 'CiliumInternalIP:10.0.0.1'),
        ipv4HealthIP: '10.0.0.2',
        encryptionKey: 3,
      }),
    );
    expect(outcome).toBe('applied');
    const owner = { owner: 'east/a', source: 'kvstore' };
    expect(ipcache.get('192.168.0.1')).toMatchObject({
      identity: 6,
      encryptKey: 0,
      hostIP: undefined,
      ...owner,
    });
    expect(ipcache.get('10.0.0.1')).toMatchObject({
      identity: 6,
      encryptKey: 3,
      hostIP: '192.168.0.1',
      ...owner,
    });
    expect(ipcache.get('10.0.0.2')).toMatchObject({
      identity: 4,
      encryptKey: 3,
      hostIP: '192.168.0.1',
      ...owner,
    });
    expect(take()).toEqual(['add a']);
  });

  it('claims its ingress IPs with identity ingress, its key and its tunnel endpoint', () => {
    const { manager, ipcache } = fresh();
    const one = { addresses: addresses('InternalIP:192.168.0.1'), encryptionKey: 3 };
    manager.nodeUpdated(node('a', { ...one, ipv4IngressIP: '10.0.0.3', ipv6IngressIP: 'fd00::3' }));
    for (const ip of ['10.0.0.3', 'fd00::3'])
      expect(ipcache.get(ip)).toMatchObject({ identity: 8, encryptKey: 3, hostIP: '192.168.0.1' });
    manager.nodeUpdated(node('a', { ...one, ipv4IngressIP: '10.0.0.4' }));
    expect(['10.0.0.3', '10.0.0.4', 'fd00::3'].map((ip) => ipcache.get(ip)?.identity)).toEqual([
      undefined,
      8,
      undefined,
    ]);
  });

  it('leaves no entry: withdrawn addresses are deleted immediately, and all of them with the node', () => {
    const { manager, ipcache } = fresh();
    manager.nodeUpdated(node('a', { addresses: addresses('InternalIP:192.168.0.1', 'ExternalIP:1.1.1.1') }));
    manager.nodeUpdated(node('a', { addresses: addresses('InternalIP:192.168.0.2', 'ExternalIP:1.1.1.1') }));
    expect(Array.from(ipcache.entries(), ({ key }) => key).sort()).toEqual(['1.1.1.1', '192.168.0.2']);
    expect(manager.nodeDeleted({ cluster: 'east', name: 'a', source: 'kvstore' })).toBe('applied');
    expect(ipcache.size).toBe(0);
    expect(manager.exists('east/a')).toBe(false);
  });

  it('causes no notification if it is written again unchanged, in any spelling', () => {
    const { manager } = fresh();
    const { handler, take } = recorder();
    manager.subscribe(handler);
    manager.nodeUpdated(
      node('a', { addresses: addresses('InternalIP:fd00::1'), ipv4AllocCIDR: '10.1.0.0/24' }),
    );
    const again = node('a', { addresses: addresses('InternalIP:FD00:0::1'), ipv4AllocCIDR: '10.1.0.9/24' });
    expect(manager.nodeUpdated(again)).toBe('unchanged');
    expect(take()).toEqual(['add a']);
  });

  it('keeps its valid fields if an address is invalid, and counts the rejection', () => {
    const { manager, ipcache } = fresh();
    const spec = node('a', {
      addresses: addresses('InternalIP:10.0.0', 'InternalIP:10.0.0.1'),
      ipv4HealthIP: 'x',
    });
    expect(manager.nodeUpdated(spec)).toBe('applied');
    expect(Array.from(ipcache.entries(), ({ key }) => key)).toEqual(['10.0.0.1']);
    const { rejections } = manager.status();
    expect(rejections.byReason['invalid-address']).toBe(2);
    expect(rejections.recent.map(({ message }) => message)).toEqual([
      'node east/a: addresses[0].ip "10.0.0" is not a valid IP address',
      'node east/a: ipv4HealthIP "x" is not a valid IP address',
    ]);
  });

  it.each([
    ['name', node('')],
    ['cluster', node('a', { cluster: 'x/y' })],
    ['source', node('a', { source: 'nobody' as 'kvstore' })],
    ['encryptionKey', node('a', { encryptionKey: 256 })],
    ['clusterID', node('a', { clusterID: -1 })],
    ['nodeIdentity', node('a', { nodeIdentity: 1.5 })],
  ])('is rejected completely if its %s is invalid', (field, spec) => {
    const { manager } = fresh();
    expect(manager.nodeUpdated(spec)).toBe('invalid');
    expect(manager.size).toBe(0);
    expect(manager.status().rejections.recent.map((rejection) => rejection.field)).toEqual([field]);
  });

  it.each([
    ['labels', ['a=b']],
    ['annotations', 'a=b'],
    ['wireguardPubKey', 7n],
  ])(
    'drops %s of a wrong type and counts it (regression: no checkpoint could be written)',
    (field, wrong) => {
      const { manager } = fresh();
      Reflect.apply(manager.nodeUpdated, manager, [{ ...node('a'), [field]: wrong }]);
      const [{ [field]: read }] = JSON.parse(JSON.stringify(manager.checkpoint())).nodes;
      expect(read).toEqual(field === 'wireguardPubKey' ? '' : {});
      expect(manager.status().rejections.recent.map((rejection) => rejection.field)).toEqual([field]);
    },
  );

  it.each(['labels', 'annotations', 'addresses', 'ipv4SecondaryAllocCIDRs'])(
    'has no %s if they are null (regression: a TypeError)',
    (field) => {
      const { manager } = fresh();
      manager.nodeUpdated(node('a'));
      const update = { ...node('a'), bootID: '2', [field]: null };
      expect(Reflect.apply(manager.nodeUpdated, manager, [update])).toBe('applied');
      expect(Reflect.apply(manager.nodeUpdated, manager, [update])).toBe('unchanged');
    },
  );
});

describe('callbacks of the options', () => {
  it('throwing-on-reject: one that throws or rejects is counted, and the write has its outcome', async () => {
    const { manager } = fresh({
      onReject: async () => {
        await Promise.resolve();
        throw new Error('my logger failed');
      },
      onLocalNodeDeleted: () => {
        throw new Error('and so does this');
      },
    });
    expect(manager.nodeUpdated(node(''))).toBe('invalid');
    manager.nodeUpdated(node('me', { source: 'local' }));
    expect(manager.nodeDeleted({ cluster: 'east', name: 'me', source: 'k8s' })).toBe('closed');
    await new Promise((resolve) => setImmediate(resolve));
    expect(manager.status()).toMatchObject({ rejections: { total: 1 }, callbackFaults: 2 });
  });
});

describe('several sources of one node', () => {
  it('the strongest is effective; when it is deleted, the next one is revealed', () => {
    const { manager, ipcache } = fresh();
    const { handler, take } = recorder();
    manager.subscribe(handler);
    manager.nodeUpdated(node('a', { source: 'k8s', addresses: addresses('InternalIP:192.168.0.1') }));
    manager.nodeUpdated(node('a', { source: 'kvstore', addresses: addresses('InternalIP:192.168.0.2') }));
    expect(manager.get('east/a')?.source).toBe('kvstore');
    expect(Array.from(ipcache.entries(), ({ key }) => key)).toEqual(['192.168.0.2']);
    manager.nodeDeleted({ cluster: 'east', name: 'a', source: 'kvstore' });
    expect(manager.get('east/a')?.source).toBe('k8s');
    expect(Array.from(ipcache.entries(), ({ key }) => key)).toEqual(['192.168.0.1']);
    expect(take()).toEqual(['add a', 'update a', 'update a']);
  });

  it("a weaker source's update never reaches the ipcache", () => {
    const { manager, ipcache } = fresh();
    manager.nodeUpdated(node('a', { addresses: addresses('InternalIP:192.168.0.1') }));
    const weaker = node('a', { source: 'k8s', addresses: addresses('InternalIP:192.168.0.9') });
    expect(manager.nodeUpdated(weaker)).toBe('overruled');
    expect(ipcache.get('192.168.0.9')).toBeUndefined();
    expect(manager.explain('east/a')?.claims.map(({ source }) => source)).toEqual(['kvstore', 'k8s']);
  });

  it('only a source that announces the node can delete it', () => {
    const { manager } = fresh();
    manager.nodeUpdated(node('a'));
    expect(manager.nodeDeleted({ cluster: 'east', name: 'a', source: 'local' })).toBe('not-owner');
    expect(manager.nodeDeleted({ cluster: 'east', name: 'b', source: 'local' })).toBe('not-found');
    expect(manager.exists('east/a')).toBe(true);
  });
});

describe('an address that a stronger source holds', () => {
  const pod = { identity: 1000, source: 'kvstore', owner: 'pods' } as const;
  const held = node('a', {
    source: 'k8s',
    addresses: addresses('InternalIP:192.168.0.1', 'InternalIP:192.168.0.2'),
  });

  it.each([true, false])(
    'handlers are told as soon as it is free (retainOverruled %s)',
    (retainOverruled) => {
      const { manager, ipcache } = fresh({ retainOverruled });
      const { handler, take } = recorder();
      manager.subscribe(handler);
      ipcache.upsert('192.168.0.1', pod);
      expect(manager.nodeUpdated(held)).toBe('applied');
      expect(take()).toEqual([]);
      expect(manager.status().heldBack).toEqual(['east/a']);
      expect(manager.explain('east/a')?.lostAddresses).toEqual([
        { ip: '192.168.0.1', holder: { source: 'kvstore', owner: 'pods' }, stronger: true },
      ]);
      ipcache.delete('192.168.0.1', pod);
      expect(take()).toEqual(['add a']);
      expect(ipcache.get('192.168.0.1')?.owner).toBe('east/a');
      expect(manager.status().heldBack).toEqual([]);
    },
  );

  it('of an API server holds nothing back (regression: a node that runs an API server was never announced)', () => {
    const { manager, ipcache } = fresh();
    const { handler, take } = recorder();
    manager.subscribe(handler);
    ipcache.upsert('192.168.0.1', { identity: 7, source: 'kube-apiserver', owner: 'metadata' });
    manager.nodeUpdated(held);
    expect(take()).toEqual(['add a']);
    expect(manager.explain('east/a')?.lostAddresses).toMatchObject([{ ip: '192.168.0.1', stronger: false }]);
  });

  it.each([
    ['me', ['add me']],
    ['other', []],
  ])(
    'of this host holds back other nodes than the local one: %s (regression: the local node was never announced)',
    (name, told) => {
      const { manager, ipcache } = fresh({ localNodeIsHost: true });
      const { handler, take } = recorder();
      manager.subscribe(handler);
      ipcache.upsert('192.168.0.1', { identity: 1, source: 'local', owner: 'host-ips' });
      manager.nodeUpdated(node(name, { addresses: addresses('InternalIP:192.168.0.1') }));
      expect(take()).toEqual(told);
    },
  );

  it('is not awaited any more by a version of the node without it', () => {
    const { manager, ipcache } = fresh();
    const { handler, take } = recorder();
    manager.subscribe(handler);
    ipcache.upsert('192.168.0.1', pod);
    manager.nodeUpdated(held);
    manager.nodeUpdated(node('a', { source: 'k8s', addresses: addresses('InternalIP:192.168.0.2') }));
    expect(take()).toEqual(['add a']);
  });

  it('holds back updates, not deletes; a node that was never announced is deleted silently', () => {
    const { manager, ipcache } = fresh();
    const { handler, take } = recorder();
    manager.subscribe(handler);
    manager.nodeUpdated(node('b', { source: 'k8s', addresses: addresses('InternalIP:192.168.0.1') }));
    ipcache.upsert('192.168.0.1', pod);
    manager.nodeUpdated(
      node('b', { source: 'k8s', addresses: addresses('InternalIP:192.168.0.1'), bootID: 'x' }),
    );
    manager.nodeUpdated(held);
    expect(take()).toEqual(['add b']);
    manager.nodeDeleted({ cluster: 'east', name: 'a', source: 'k8s' });
    manager.nodeDeleted({ cluster: 'east', name: 'b', source: 'k8s' });
    expect(take()).toEqual(['delete b']);
  });

  it.each([true, false])(
    'comes back when it was taken after the node had it (retainOverruled %s)',
    (retainOverruled) => {
      const { manager, ipcache } = fresh({ retainOverruled });
      manager.nodeUpdated(held);
      ipcache.upsert('192.168.0.1', pod);
      expect(ipcache.get('192.168.0.1')?.owner).toBe('pods');
      ipcache.delete('192.168.0.1', pod);
      expect(ipcache.get('192.168.0.1')?.owner).toBe('east/a');
    },
  );
});

describe('an address that two nodes have', () => {
  it('and that both claim in one withdrawal belongs to the stronger one: the other is held back (regression: was announced)', () => {
    const { manager, ipcache } = fresh();
    const { handler, take } = recorder();
    manager.subscribe(handler);
    const shared = addresses('InternalIP:10.0.0.1');
    manager.nodeUpdated(node('a', { source: 'local' }));
    manager.nodeUpdated(node('b', { source: 'local' }));
    manager.nodeUpdated(node('b', { source: 'k8s', addresses: shared }));
    manager.nodeUpdated(node('a', { source: 'clustermesh', addresses: shared }));
    ipcache.upsert('10.0.0.1', { source: 'restored', identity: 100 });
    take();
    manager.withdraw({ source: 'local' });
    expect(take()).toEqual(['update b']);
    expect(manager.explain('east/a')?.lostAddresses).toMatchObject([{ ip: '10.0.0.1', stronger: true }]);
    manager.nodeDeleted({ cluster: 'east', name: 'b', source: 'k8s' });
    expect([...take()].sort()).toEqual(['delete b', 'update a']);
  });

  it.each([true, false])('stays with the other when one goes (retainOverruled %s)', (retainOverruled) => {
    const { manager, ipcache } = fresh({ retainOverruled });
    for (const name of ['a', 'b']) {
      manager.nodeUpdated(node(name, { addresses: addresses('InternalIP:192.168.0.1') }));
    }
    manager.nodeDeleted({ cluster: 'east', name: 'b', source: 'kvstore' });
    expect(ipcache.get('192.168.0.1')?.owner).toBe('east/a');
    manager.nodeUpdated(node('b', { addresses: addresses('InternalIP:192.168.0.1') }));
    manager.nodeDeleted({ cluster: 'east', name: 'a', source: 'kvstore' });
    expect(ipcache.get('192.168.0.1')?.owner).toBe('east/b');
  });

  it('may change its role within a node', () => {
    const { manager, ipcache } = fresh();
    const one = { addresses: addresses('InternalIP:10.0.0.1'), ipv4HealthIP: '10.0.0.2' };
    const other = { addresses: addresses('InternalIP:10.0.0.2'), ipv4HealthIP: '10.0.0.1' };
    manager.nodeUpdated(node('a', one));
    manager.nodeUpdated(node('a', other));
    expect(ipcache.get('10.0.0.1')?.identity).toBe(4);
    expect(ipcache.get('10.0.0.2')?.identity).toBe(6);
  });
});

describe('a handler', () => {
  it('receives every node when it subscribes, then changes, until it unsubscribes', () => {
    const { manager } = fresh();
    manager.nodeUpdated(node('a'));
    const { handler, take } = recorder();
    const unsubscribe = manager.subscribe(handler);
    manager.nodeUpdated(node('b'));
    expect(take()).toEqual(['add a', 'add b']);
    unsubscribe();
    manager.nodeUpdated(node('c'));
    expect(take()).toEqual([]);
  });

  it('starts from the beginning if it is subscribed again', () => {
    const { manager } = fresh();
    const { handler, take } = recorder();
    manager.nodeUpdated(node('a'));
    manager.subscribe(handler);
    manager.subscribe(handler);
    expect(take()).toEqual(['add a', 'add a']);
    manager.nodeUpdated(node('a', { bootID: 'x' }));
    expect(take()).toEqual(['update a']);
  });

  it('that changes nodes itself is notified of them afterwards, as are all others', () => {
    const { manager } = fresh();
    const order: string[] = [];
    manager.subscribe(
      new RecordingNodeHandler((record) => {
        if (!('node' in record)) return;
        order.push(`first: ${record.kind} ${record.node.bootID}`);
        if (record.kind === 'add') manager.nodeUpdated(node('a', { bootID: '2' }));
      }),
    );
    manager.subscribe(
      new RecordingNodeHandler((record) => {
        if ('node' in record) order.push(`second: ${record.kind} ${record.node.bootID}`);
      }),
    );
    manager.nodeUpdated(node('a', { bootID: '1' }));
    expect(order).toEqual(['first: add 1', 'second: add 1', 'first: update 2', 'second: update 2']);
  });

  it('that adds a node during its replay is notified of it once', () => {
    const { manager } = fresh();
    const { handler, take } = recorder();
    manager.nodeUpdated(node('a'));
    manager.subscribe({
      nodeAdd: (added) => {
        handler.nodeAdd(added);
        if (added.name === 'a') manager.nodeUpdated(node('b'));
      },
      nodeUpdate: () => {},
      nodeDelete: () => {},
    });
    expect(take()).toEqual(['add a', 'add b']);
  });

  it('that restores a node during a withdrawal of all is notified of its delete before the call returns', () => {
    const { manager } = fresh();
    const { handler, take } = recorder();
    manager.nodeUpdated(node('a'));
    manager.nodeUpdated(node('b'));
    manager.subscribe({
      nodeAdd: (added) => handler.nodeAdd(added),
      nodeUpdate: () => {},
      nodeDelete: (deleted) => {
        handler.nodeDelete(deleted);
        if (deleted.name === 'a') manager.nodeUpdated(node('b'));
      },
    });
    take();
    manager.deleteAllNodes();
    expect(take()).toEqual(['delete a', 'delete b', 'add b']);
    expect(manager.exists('east/b')).toBe(true);
  });

  it('may not change nodes from within the ipcache, and the attempt has no other effect', () => {
    const { manager, ipcache } = fresh();
    const { handler, take } = recorder();
    manager.subscribe(handler);
    let refused = 0;
    ipcache.subscribe({
      onChanges: () => {
        try {
          manager.nodeUpdated(node('b'));
        } catch {
          refused++;
        }
      },
    });
    manager.nodeUpdated(node('a', { addresses: addresses('InternalIP:10.0.0.1') }));
    expect(refused).toBe(1);
    expect(take()).toEqual(['add a']);
    expect(manager.size).toBe(1);
  });

  it('I7 isolation: that throws affects no other, is counted, and is called again', () => {
    const faults: unknown[] = [];
    const { manager, clock } = fresh({
      onHandlerFault: ({ call, node: name }) => faults.push(`${call} ${name}`),
    });
    let broken = true;
    const told: string[] = [];
    const act = (word: string): void => {
      if (broken) throw new Error('no netlink');
      told.push(word);
    };
    manager.subscribe({
      name: 'broken',
      nodeAdd: ({ bootID }) => act(`add ${bootID}`),
      nodeUpdate: (_, { bootID }) => act(`update ${bootID}`),
      nodeDelete: () => act('delete'),
    });
    const { handler, take } = recorder();
    manager.subscribe(handler);
    expect(manager.nodeUpdated(node('a', { bootID: '1' }))).toBe('applied');
    expect(take()).toEqual(['add a']);
    expect(faults).toEqual(['add east/a']);
    expect(manager.status().handlers[0]).toMatchObject({
      name: 'broken',
      faults: 1,
      failing: [{ call: 'add' }],
    });
    broken = false;
    manager.nodeUpdated(node('a', { bootID: '2' }));
    expect(told, 'what the failed call may have left is removed first').toEqual(['delete', 'add 2']);
    clock.advance(60_000);
    expect(told).toEqual(['delete', 'add 2']);
    expect(manager.status().handlers[0]?.failing).toEqual([]);
  });
});

describe('withdrawal', () => {
  it('I10 no orphans: removing a cluster deletes all its nodes, and not those of a cluster with a longer name', () => {
    const { manager, ipcache } = fresh();
    const { handler, take } = recorder();
    manager.subscribe(handler);
    const remote = { source: 'clustermesh' } as const;
    manager.nodeUpdated(
      node('a', { ...remote, cluster: 'west', addresses: addresses('InternalIP:10.0.0.1') }),
    );
    manager.nodeUpdated(
      node('b', { ...remote, cluster: 'westend', addresses: addresses('InternalIP:10.0.0.2') }),
    );
    manager.nodeUpdated(node('c', { addresses: addresses('InternalIP:10.0.0.3') }));
    expect(manager.withdraw({ source: 'clustermesh', cluster: 'west' })).toBe(1);
    expect(Array.from(manager.nodes(), ({ fullName }) => fullName)).toEqual(['westend/b', 'east/c']);
    expect(Array.from(ipcache.entries(), ({ key }) => key).sort()).toEqual(['10.0.0.2', '10.0.0.3']);
    expect(take()).toEqual(['add a', 'add b', 'add c', 'delete a']);
  });

  it('of all nodes leaves nothing in the ipcache', () => {
    const { manager, ipcache } = fresh();
    manager.nodeUpdated(node('a', { addresses: addresses('InternalIP:10.0.0.1') }));
    manager.nodeUpdated(node('a', { source: 'k8s', addresses: addresses('InternalIP:10.0.0.2') }));
    manager.deleteAllNodes();
    expect(manager.size).toBe(0);
    expect(ipcache.size).toBe(0);
  });
});

describe('the local node', () => {
  it('has identity host, and is not changed by claims of other sources', () => {
    const { manager, ipcache } = fresh();
    manager.nodeUpdated(node('me', { source: 'local', addresses: addresses('InternalIP:10.0.0.1') }));
    expect(manager.nodeUpdated(node('me', { addresses: addresses('InternalIP:10.0.0.1') }))).toBe(
      'overruled',
    );
    expect(ipcache.get('10.0.0.1')).toMatchObject({ identity: 1, source: 'local' });
  });

  it('deleted by Kubernetes closes the manager, and leaves nodes, ipcache and datapath unchanged', () => {
    let told = 0;
    const { manager, ipcache } = fresh({ onLocalNodeDeleted: () => told++ });
    const { handler, take } = recorder();
    manager.subscribe(handler);
    manager.nodeUpdated(node('me', { source: 'local', addresses: addresses('InternalIP:10.0.0.1') }));
    manager.nodeUpdated(node('b', { addresses: addresses('InternalIP:10.0.0.2') }));
    take();
    expect(manager.nodeDeleted({ cluster: 'east', name: 'me', source: 'k8s' })).toBe('closed');
    expect(manager.nodeDeleted({ cluster: 'east', name: 'me', source: 'k8s' })).toBe('closed');
    expect(told).toBe(1);
    expect(manager.closed).toBe(true);
    expect(take()).toEqual([]);
    expect(manager.size).toBe(2);
    expect(ipcache.size).toBe(2);
    expect(manager.nodeUpdated(node('c'))).toBe('closed');
  });
});

it('the interval for a cluster of n nodes is base × ln(1 + n)', () => {
  const { manager } = fresh();
  expect(manager.clusterSizeDependantInterval(60_000_000_000)).toBe(60_000_000_000);
  manager.nodeUpdated(node('a'));
  expect(manager.clusterSizeDependantInterval(60_000_000_000)).toBe(41_588_830_833);
});
