import { describe, expect, it } from 'vitest';
import type { Ask } from '../../src/api/api-client.ts';
import type { KindDocument } from '../../src/api/status-document.ts';
import { type DifferingClaim, DiffReasons } from '../../src/client/diff-reasons.ts';

type Kind = Pick<KindDocument, 'name' | 'state' | 'complete' | 'behindMs'>;
type Claim = NonNullable<DifferingClaim['a']>;

/** Returns the reasons of two agents of the cluster `own`. Agent b reads these kinds from Kubernetes. */
async function reasonsWith(...kinds: readonly Kind[]): Promise<DiffReasons> {
  const agent =
    (kubernetes: object | undefined): Ask =>
    async (path) => {
      if (path === '/v1/status') return { cluster: 'own', clusters: [], kubernetes };
      if (path === '/v1/rejections') return { recent: [] };
      return path.startsWith('/v1/history') ? { items: [] } : { claims: [] };
    };
  const digest = { settings: {} } as never; // equal settings
  return DiffReasons.read({ a: agent(undefined), b: agent({ kinds }) }, { a: digest, b: digest });
}

/** Returns the text of the reason; undefined if none was found. */
async function claimReason(
  claim: Partial<Claim>,
  kinds: readonly Kind[],
  writer = 'k8s',
  side: 'a' | 'b' = 'a',
): Promise<string | undefined> {
  const reasons = await reasonsWith(...kinds);
  const only = { key: '10.7.0.1', place: 0, identity: 900, encryptKey: 0, ...claim };
  const pair = { writer, key: only.key, a: undefined, b: undefined, [side]: only };
  const [reason, detail] = await reasons.reasonOfClaim(pair);
  expect(reason).toBe(detail === '' ? 'none-found' : 'incomplete');
  return detail === '' ? undefined : detail;
}

async function documentReason(writer: string, kinds: readonly Kind[]): Promise<string | undefined> {
  const [, detail] = (await reasonsWith(...kinds)).reasonOfDocument({
    writer,
    key: 'x',
    a: undefined,
    b: {},
  });
  return detail === '' ? undefined : detail;
}

const POD = { namespace: 'shop', podName: 'cart' };
const NODE = { owner: 'own/n1' };
const forbidden = (name: string): Kind => ({ name, state: 'forbidden', complete: false });

describe('a kind of Kubernetes objects is the reason of a difference', () => {
  const STATES = ['listing', 'watching', 'waiting', 'missing', 'stopped', 'resting', 'forbidden'] as const;
  const cases = STATES.flatMap((state) =>
    [true, false].flatMap((complete) => [undefined, 0, 7].map((behindMs) => ({ state, complete, behindMs }))),
  );

  it.each(cases)(
    'exactly if it is forbidden, or not resting and incomplete or behind: $state, complete $complete, behind $behindMs',
    async (kind) => {
      const { state, complete, behindMs } = kind;
      let expected = false;
      if (state === 'forbidden') expected = true;
      else if (state !== 'resting') expected = !complete || behindMs !== undefined;
      const text = `b: kind ciliumendpoints is ${state}${complete ? '' : ', incomplete'}`;
      const found = await claimReason(POD, [{ name: 'ciliumendpoints', ...kind }]);
      expect(found).toBe(expected ? text : undefined);
    },
  );

  it.each([
    // name, of the claim of a pod, of another address, of a node
    ['ciliumendpoints', true, true, false],
    ['services', false, true, false],
    ['endpointslices', false, true, false],
    ['endpoints', false, true, false],
    ['ciliumnodes', false, false, true],
    ['nodes', false, false, true],
  ] as const)(
    'only if claims can come from it: %s, of a pod %s, of another address %s, of a node %s',
    async (name, ofPod, ofAddress, ofNode) => {
      const text = `b: kind ${name} is forbidden, incomplete`;
      for (const [claim, isExpected] of [
        [POD, ofPod],
        [{}, ofAddress],
        [{ owner: 'baltic' }, ofAddress],
        [NODE, ofNode],
      ] as const)
        for (const writer of ['k8s', 'custom-resource'])
          for (const side of ['a', 'b'] as const)
            expect(await claimReason(claim, [forbidden(name)], writer, side)).toBe(
              isExpected ? text : undefined,
            );
    },
  );

  it('not for claims from other sources', async () => {
    for (const writer of ['kvstore', 'generated'])
      expect(await claimReason(POD, [forbidden('ciliumendpoints')], writer)).toBeUndefined();
  });

  it.each([
    ['services', true, false],
    ['endpointslices', true, false],
    ['endpoints', true, false],
    ['ciliumnodes', false, true],
    ['nodes', false, true],
    ['ciliumendpoints', false, false],
  ] as const)(
    'of a service or node of the local cluster: %s, of a service %s, of a node %s',
    async (name, ofService, ofNode) => {
      const text = `b: kind ${name} is forbidden, incomplete`;
      const kinds = [forbidden(name)];
      expect(await documentReason('services', kinds)).toBe(ofService ? text : undefined);
      expect(await documentReason('nodes own', kinds)).toBe(ofNode ? text : undefined);
      expect(await documentReason('nodes baltic', kinds)).toBe('a: cluster baltic is not followed');
    },
  );

  it('names the first such kind, and no kind without a defect', async () => {
    const good: Kind = { name: 'ciliumendpoints', state: 'watching', complete: true };
    expect(await claimReason({}, [good, forbidden('services')])).toBe(
      'b: kind services is forbidden, incomplete',
    );
    expect(await claimReason({}, [good])).toBeUndefined();
    expect(await claimReason({}, [])).toBeUndefined();
  });
});
