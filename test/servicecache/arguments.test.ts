import { describe, it } from 'vitest';
import type { ServiceCache } from '../../src/servicecache/service-cache.ts';
import { alone, expectRefused, without } from '../base/support/wrong-arguments.ts';
import { cacheOf, offer, SHOP, service, slice } from './support/scene.ts';

const NO_ID = without(SHOP, 'namespace', 'name');
const NO_SERVICE = [
  ...without(service(), 'clusterIPs', 'ports', 'externalIPs', 'ingressIPs', 'labels', 'selector'),
  ...NO_ID.map((id) => ({ ...service(), id })),
];
const NO_SLICE = [
  ...without(slice('s', []), 'name', 'backends', 'notReady'),
  ...NO_ID.map((id) => ({ ...slice('s', []), service: id })),
];
const OFFER = offer('east', []);

const WRONG: Partial<Record<keyof ServiceCache, readonly (readonly unknown[])[]>> = {
  updateService: alone(NO_SERVICE),
  deleteService: alone(NO_ID),
  updateEndpoints: alone(NO_SLICE),
  deleteEndpoints: [...NO_ID.map((id) => [id, 's']), [SHOP, undefined]],
  mergeExternalServiceUpdate: alone(without(OFFER, 'cluster', 'namespace', 'name', 'backends')),
  mergeExternalServiceDelete: alone(without(OFFER, 'cluster', 'namespace', 'name')),
  withdrawCluster: [[undefined]],
  batch: [[undefined]],
  subscribe: alone(without({ onEvents: () => {} }, 'onEvents')),
  stream: [[7]],
  reject: alone(without({ reason: 'missing' }, 'reason')),
  get: alone(NO_ID),
  explain: alone(NO_ID),
  getServiceIP: alone(NO_ID),
  lookupFrontend: [[undefined, 80, 6]],
  lookupAddress: [[undefined]],
  select: alone(NO_ID),
  resolve: alone(NO_ID),
};

describe('a service cache rejects an incomplete argument', () => {
  it.each(Object.entries(WRONG))('%s', (method, calls) => {
    expectRefused(cacheOf(), method, calls);
  });
});
