import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { temporaryFolder } from '../agent/support/temporary-folder.ts';
import { dpcache } from './support/run.ts';

const label = (source: string, key: string, value: string): object => ({ [key]: { key, value, source } });

function endpoint(id: number, fields: object = {}): object {
  return {
    ID: id,
    ContainerName: '',
    dockerID: 'abc',
    IPv4: `10.1.0.${id % 250}`,
    IPv6: '',
    K8sPodName: `web-${id}`,
    K8sNamespace: 'shop',
    OpLabels: {
      Custom: {},
      OrchestrationIdentity: label('k8s', 'app', 'web'),
      Disabled: {},
      OrchestrationInfo: {},
    },
    SecLabel: { id: 66_000 + id, labels: label('k8s', 'app', 'web'), labelsSHA256: 'x' },
    Options: {},
    ...fields,
  };
}

function header(value: unknown, before = '/*\n'): string {
  const base64 = (part: unknown): string => Buffer.from(JSON.stringify(part)).toString('base64');
  return `${before} * CILIUM_BASE64_${base64({ Version: '1.8.11' })}:${base64(value)}\n * \n */\n#define LXC_ID 1\n`;
}

const NODE = {
  Name: 'n1',
  Cluster: 'own',
  IPAddresses: [{ Type: 'InternalIP', IP: '192.168.0.1' }],
  IPv4AllocCIDR: { IP: '10.1.0.0', Mask: '////AA==' },
};

describe('dpcache restore inspect', () => {
  it('shows endpoints of every version, nodes and local identities', async () => {
    const folder = temporaryFolder({
      'state/7/lxc_config.h': header(endpoint(7)),
      'state/8/ep_config.h': header(endpoint(8)),
      'state/8/lxc_config.h': 'a link that is not read',
      'state/9/ep_config.json': JSON.stringify(endpoint(9, { K8sUID: 'u-9', IPv6: 'fd00::9' })),
      'state/9/ep_config.h': 'not read either',
      'state/10/ep_config.h': header(endpoint(10, { SecLabel: undefined })),
      'state/11/ep_config.json': JSON.stringify(
        endpoint(11, { K8sPodName: '', SecLabel: { id: 4, labels: label('reserved', 'health', '') } }),
      ),
      'state/nodes.json': JSON.stringify([NODE]),
      'state/local_allocator_state.json': JSON.stringify([
        { id: 16_777_217, labels: label('cidr', '10.0.0.0/8', '') },
      ]),
      'state/globals/node_config.h': ' cilium.v4.internal.raw 0xa, 0x1, 0x0, 0x1\n',
      'state/12_stale/ep_config.h': 'ignored',
    });
    const { status, stdout, stderr } = await dpcache('restore', 'inspect', folder, '-o', 'json');
    expect([status, stderr]).toEqual([0, '']);
    expect(JSON.parse(stdout)).toMatchObject({
      folder: join(folder, 'state'),
      endpoints: [
        {
          id: 7,
          file: '7/lxc_config.h',
          identity: 66_007,
          ipv4: '10.1.0.7',
          labels: ['k8s:app=web'],
          kind: 'pod',
        },
        { id: 8, file: '8/ep_config.h', namespace: 'shop', podName: 'web-8', containerID: 'abc' },
        { id: 9, file: '9/ep_config.json', podUID: 'u-9', ipv6: 'fd00::9', identityLabels: ['k8s:app=web'] },
        { id: 10, identity: 5, labels: [] },
        { id: 11, identity: 4, kind: 'health' },
      ],
      nodes: [{ cluster: 'own', name: 'n1', addresses: ['InternalIP=192.168.0.1'] }],
      localIdentities: [{ identity: 16_777_217, labels: ['cidr:10.0.0.0/8'] }],
      addresses: [
        { address: '10.1.0.1', pool: 'default', use: 'router', name: 'cilium_host' },
        { address: '10.1.0.7', use: 'endpoint', name: '7/lxc_config.h' },
        { address: '10.1.0.8', use: 'endpoint', name: '8/ep_config.h' },
        { address: '10.1.0.9', use: 'endpoint', name: '9/ep_config.json' },
        { address: 'fd00::9', use: 'endpoint', name: '9/ep_config.json' },
        { address: '10.1.0.10', use: 'endpoint', name: '10/ep_config.h' },
      ],
      ignored: [],
      problems: [],
    });
    const text = await dpcache('restore', 'inspect', join(folder, 'state'));
    expect(text.stdout).toContain('shop/web-9');
    expect(text.stdout).toContain('not imported: cilium-health allocates it again');
  });

  it('reads an unfinished folder only if there is no finished one', async () => {
    const folder = temporaryFolder({
      '7/ep_config.h': header(endpoint(7)),
      '7_next/ep_config.h': header(endpoint(7, { IPv4: '10.9.9.9' })),
      '8_next_fail/ep_config.h': header(endpoint(8)),
    });
    const { stdout } = await dpcache('restore', 'inspect', folder, '-o', 'json');
    expect(JSON.parse(stdout)).toMatchObject({
      endpoints: [
        { id: 7, ipv4: '10.1.0.7' },
        { id: 8, file: '8_next_fail/ep_config.h' },
      ],
      ignored: ['7_next'],
    });
    const text = await dpcache('restore', 'inspect', folder);
    expect(text.stdout).toMatch(/\n7_next: not read, because another folder of the same endpoint is read\n$/);
  });

  it('uses the folder named after the endpoint id if two folders contain that id', async () => {
    const folder = temporaryFolder({
      '7/ep_config.h': header(endpoint(7)),
      '6/ep_config.h': header(endpoint(7, { IPv4: '10.9.9.9' })),
    });
    const { status, stdout, stderr } = await dpcache('restore', 'inspect', folder, '-o', 'json');
    expect(status).toBe(0);
    expect(JSON.parse(stdout)).toMatchObject({ endpoints: [{ id: 7, file: '7/ep_config.h' }] });
    expect(stderr).toContain('duplicate of 6/ep_config.h: 7/ep_config.h is used');
  });

  it('names the folder that is used if two folders contain the id of a third, which does not exist', async () => {
    const folder = temporaryFolder({
      '5/ep_config.h': header(endpoint(7)),
      '6/ep_config.h': header(endpoint(7, { IPv4: '10.9.9.9' })),
    });
    const { stdout, stderr } = await dpcache('restore', 'inspect', folder, '-o', 'json');
    expect(JSON.parse(stdout)).toMatchObject({ endpoints: [{ id: 7, file: '5/ep_config.h' }] });
    expect(stderr).toContain('duplicate of 5/ep_config.h: 5/ep_config.h is used'); // was: the folder 7
  });

  it('names the endpoint that keeps an address if two have it (A 12)', async () => {
    const folder = temporaryFolder({
      '7/ep_config.h': header(endpoint(7)),
      '8/ep_config.h': header(endpoint(8, { IPv4: '10.1.0.7' })),
    });
    const { status, stdout, stderr } = await dpcache('restore', 'inspect', folder, '-o', 'json');
    expect(status).toBe(0);
    expect(JSON.parse(stdout).addresses).toEqual([
      { address: '10.1.0.7', pool: 'default', use: 'endpoint', name: '7/ep_config.h' },
    ]);
    expect(stderr).toMatch(/8\/ep_config\.h: .*10\.1\.0\.7.*already in use by another owner/);
  });

  it('names each unreadable file with its field, and reads the others', async () => {
    const folder = temporaryFolder({
      '1/ep_config.h': '#define LXC_ID 1\n',
      '2/ep_config.h': ' * CILIUM_BASE64_e30=:e30=:e30=\n',
      '3/ep_config.h': ' * CILIUM_BASE64_!!:e30=\n',
      '4/ep_config.h': header('no object'),
      '5/ep_config.json': '{"ID": 5, "IPv4": "10.0.0"}',
      '6/ep_config.json': '{"ID": 70000}',
      '7/ep_config.json': '{"ID": 7',
      '8/ep_config.h': header(endpoint(8)),
      'nodes.json': JSON.stringify([NODE, { Name: 'n2' }]),
      'local_allocator_state.json': '{}',
    });
    mkdirSync(join(folder, '9'));
    const { status, stdout, stderr } = await dpcache('restore', 'inspect', folder, '-o', 'json');
    expect(status).toBe(0);
    const { endpoints, nodes, problems } = JSON.parse(stdout);
    expect([endpoints.length, nodes.length]).toEqual([1, 1]);
    expect(problems.map(({ file, field }: { file: string; field: string }) => `${file} ${field}`)).toEqual([
      '1/ep_config.h CILIUM_BASE64_',
      '2/ep_config.h CILIUM_BASE64_',
      '3/ep_config.h CILIUM_BASE64_',
      '4/ep_config.h endpoint',
      '5/ep_config.json IPv4',
      '6/ep_config.json ID',
      '7/ep_config.json ',
      '9 folder',
      'nodes.json [1] Cluster',
      'local_allocator_state.json identities',
    ]);
    expect(stderr.trim().split('\n').length).toBe(problems.length);
    // Regression: "9: file undefined: contains none of …"
    expect(stderr).toContain('9: folder "9": must contain one of ep_config.json, ep_config.h, lxc_config.h');
  });

  it('is not imported by an agent that would not keep it', async () => {
    const { status, stderr } = await dpcache('agent', '--import-cilium-state', '/var/run/cilium/state');
    expect([status, stderr]).toEqual([2, expect.stringContaining('requires --state-dir')]);
  });

  it('ends with status 1 if there is no state directory', async () => {
    const folder = temporaryFolder({ 'some/file': '' });
    expect(await dpcache('restore', 'inspect', folder)).toMatchObject({ status: 1, stdout: '' });
    const gone = await dpcache('restore', 'inspect', join(folder, 'gone'));
    expect(gone).toMatchObject({ status: 1 });
    expect(gone.stderr).toContain('no such file or folder');
    writeFileSync(join(folder, 'file'), '');
    expect(await dpcache('restore', 'inspect', join(folder, 'file'))).toMatchObject({ status: 1 });
    expect(await dpcache('restore', 'inspect')).toMatchObject({ status: 2 });
  });
});
