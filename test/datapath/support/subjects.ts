import { Map as ImmutableMap } from 'immutable';
import type { Unsubscribe } from '../../../src/base/subscription.ts';
import { IPCache } from '../../../src/ipcache/ipcache.ts';
import { NodeManager } from '../../../src/nodemanager/node-manager.ts';
import { createService } from '../../../src/servicecache/service.ts';
import { ServiceCache } from '../../../src/servicecache/service-cache.ts';
import { ManualClock } from '../../base/support/manual-clock.ts';

/** One change of any engine: the value of a key, undefined if deleted. */
export interface Change {
  readonly key: string;
  readonly old: number | undefined;
  readonly next: number | undefined;
}

/** A listener of any engine. */
export interface Probe {
  changes(changes: readonly Change[]): void;
  synced(): void;
  ended(): void;
}

/** An engine that holds a number under each of a few keys. */
export interface Subject {
  readonly name: string;
  /** False for node handlers; the others are notified that their replay is complete or has failed. */
  readonly hasReplayEnd: boolean;
  put(key: string, value: number): void;
  remove(key: string): void;
  get(key: string): number | undefined;
  batch(work: () => void): void;
  subscribe(probe: Probe): Unsubscribe;
}

export const KEYS: readonly string[] = ['1', '2', '3', '4', '5'];

/** Identities of IPs. A replay has slices of two entries. */
function ipcacheSubject(): Subject {
  const cache = new IPCache({ replayChunk: 2 });
  const source = 'kvstore';
  return {
    name: 'IPCache',
    hasReplayEnd: true,
    put: (key, value) => void cache.upsert(`10.0.0.${key}`, { identity: value, source }),
    remove: (key) => void cache.delete(`10.0.0.${key}`, { source }),
    get: (key) => cache.get(`10.0.0.${key}`)?.identity,
    batch: (work) => cache.batch(work),
    subscribe: (probe) =>
      cache.subscribe({
        onChanges: (changes) =>
          probe.changes(
            changes.map(({ prefix, old, new: next }) => ({
              key: prefix.slice('10.0.0.'.length, -'/32'.length),
              old: old?.identity,
              next: next?.identity,
            })),
          ),
        onSynced: () => probe.synced(),
        onEnded: () => probe.ended(),
      }),
  };
}

/** Session timeouts of headless services. */
function serviceSubject(): Subject {
  const cache = new ServiceCache({ clusterName: 'own' });
  cache.markSynced();
  const id = (name: string): { namespace: string; name: string } => ({ namespace: 'ns', name });
  return {
    name: 'ServiceCache',
    hasReplayEnd: true,
    put: (key, value) =>
      void cache.updateService(
        createService({ id: id(key), addressing: 'headless', labels: ImmutableMap({ v: `${value}` }) }),
      ),
    remove: (key) => void cache.deleteService(id(key)),
    get: (key) => numberOf(cache.get(id(key))?.service.labels.get('v')),
    batch: (work) => cache.batch(work),
    subscribe: (probe) =>
      cache.subscribe({
        onEvents: (events) =>
          probe.changes(
            events.map(({ action, id: { name }, service, oldService }) => ({
              key: name,
              old: numberOf(oldService?.labels.get('v')),
              next: action === 'delete' ? undefined : numberOf(service.labels.get('v')),
            })),
          ),
        onSynced: () => probe.synced(),
        onEnded: () => probe.ended(),
      }),
  };
}

/** Boot ids of nodes. */
function nodeSubject(): Subject {
  const manager = new NodeManager({
    ipcache: new IPCache(),
    clock: new ManualClock(),
    clusterName: 'own',
    nodeName: 'me',
  });
  const source = 'kvstore';
  return {
    name: 'NodeManager',
    hasReplayEnd: false,
    put: (name, value) => void manager.nodeUpdated({ cluster: 'own', name, source, bootID: `${value}` }),
    remove: (name) => void manager.nodeDeleted({ cluster: 'own', name, source }),
    get: (key) => numberOf(manager.get(`own/${key}`)?.bootID),
    batch: (work) => work(),
    subscribe: (probe) =>
      manager.subscribe({
        nodeAdd: ({ name, bootID }) => probe.changes([{ key: name, old: undefined, next: numberOf(bootID) }]),
        nodeUpdate: (old, { name, bootID }) =>
          probe.changes([{ key: name, old: numberOf(old.bootID), next: numberOf(bootID) }]),
        nodeDelete: ({ name, bootID }) =>
          probe.changes([{ key: name, old: numberOf(bootID), next: undefined }]),
      }),
  };
}

function numberOf(text: string | undefined): number | undefined {
  return text === undefined ? undefined : Number(text);
}

/** Functions that create each engine. */
export const SUBJECTS: readonly (() => Subject)[] = [ipcacheSubject, serviceSubject, nodeSubject];
