import type { Clock } from '../base/clock.ts';
import { messageOf } from '../base/failure.ts';
import { sleep } from '../base/sleep.ts';
import { mergePatch } from '../k8s/memory/json-patch.ts';
import { bytesOfText, textOfBytes } from '../kvstore/codec/bytes.ts';
import type { KvstoreBackend } from '../kvstore/session/backend.ts';
import { parseJson } from '../net/fields.ts';
import type { PlayAction, PlayStep } from './play-script.ts';
import type { RecordedKubernetes } from './recorded-kubernetes.ts';

/** The kvstores, clusters and Kubernetes objects that a script can change. */
export interface PlayTarget {
  /** Returns the kvstore of a cluster; `undefined` if the cluster is unknown. */
  kvstore(cluster: string): KvstoreBackend | undefined;
  /** The recorded Kubernetes; `undefined` if none was loaded. */
  readonly recordedKubernetes?: Pick<RecordedKubernetes, 'apply' | 'delete'> | undefined;
  /** Removes the configuration of a remote cluster. Resolves to false if there is none. */
  leave(cluster: string): Promise<boolean>;
  /** Adds the configuration again. Resolves to false if the cluster is unknown. */
  join(cluster: string): Promise<boolean>;
}

/** Changes fields of the JSON value of a key. Returns the reason if it failed. */
async function patchKey(kvstore: KvstoreBackend, key: string, patch: unknown): Promise<string | undefined> {
  const current = await kvstore.get(key);
  if (current === undefined) return `key ${key} does not exist`;
  const json = parseJson(textOfBytes(current.value) ?? '');
  if (json === undefined) return `the value of key ${key} is not JSON`;
  await kvstore.update(key, bytesOfText(JSON.stringify(mergePatch(json, patch))));
  return undefined;
}

/** Replaces a text in all values below a prefix. Returns the reason if none contains it. */
async function replaceText(
  kvstore: KvstoreBackend,
  { prefix, text, replacement }: PlayAction & { kind: 'replace' },
): Promise<string | undefined> {
  let replaced = 0;
  for (const { key, value } of await kvstore.listPrefix(prefix)) {
    const previous = textOfBytes(value);
    if (previous?.includes(text) !== true) continue;
    await kvstore.update(key, bytesOfText(previous.replaceAll(text, () => replacement)));
    replaced++;
  }
  return replaced === 0 ? `no value below ${prefix} contains the text` : undefined;
}

/** Performs an action. Returns the reason if it failed. */
async function perform(action: PlayAction, target: PlayTarget): Promise<string | undefined> {
  if (action.kind === 'leave' || action.kind === 'join') {
    return (await target[action.kind](action.cluster)) ? undefined : 'not a remote cluster';
  }
  if (action.kind === 'apply' || action.kind === 'remove') {
    if (target.recordedKubernetes === undefined) return 'no Kubernetes objects are loaded: add --k8s-load';
    return action.kind === 'apply'
      ? target.recordedKubernetes.apply(action.object)
      : target.recordedKubernetes.delete(action.object);
  }
  const kvstore = target.kvstore(action.store);
  if (kvstore === undefined) return `cluster ${action.store} does not exist`;
  switch (action.kind) {
    case 'put':
      await kvstore.update(action.key, bytesOfText(action.value));
      return undefined;
    case 'delete':
      return (await kvstore.delete(action.key)) ? undefined : `key ${action.key} does not exist`;
    case 'patch':
      return patchKey(kvstore, action.key, action.patch);
    case 'replace':
      return replaceText(kvstore, action);
  }
}

/**
 * Plays a script. For each step, waits, notifies the listener and performs the actions. Reports failed actions and
 * continues. Resolves at the end of the script. If `signal` fires, ends after the actions of the current step.
 */
export async function play(
  steps: readonly PlayStep[],
  target: PlayTarget,
  listener: { onStep(step: PlayStep): void; onFailure(action: PlayAction, reason: string): void },
  clock: Clock,
  signal: AbortSignal,
): Promise<void> {
  for (const step of steps) {
    await sleep(clock, step.after * 1000, signal);
    if (signal.aborted) return;
    listener.onStep(step);
    for (const action of step.actions) {
      const failure = await perform(action, target).catch(messageOf);
      if (failure !== undefined) listener.onFailure(action, failure);
    }
  }
}
