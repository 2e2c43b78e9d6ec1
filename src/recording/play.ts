import type { Clock } from '../base/clock.ts';
import { sleep } from '../base/sleep.ts';
import { mergePatch } from '../k8s/memory/json-patch.ts';
import { bytesOfText, textOfBytes } from '../kvstore/codec/bytes.ts';
import type { KvstoreBackend } from '../kvstore/session/backend.ts';
import type { PlayAction, PlayStep } from './play-script.ts';
import type { RecordedKubernetes } from './recorded-kubernetes.ts';

/** The kvstores, clusters and Kubernetes objects that a script can change. */
export interface PlayStage {
  /** Returns the kvstore of a cluster; `undefined` if the cluster is unknown. */
  kvstore(cluster: string): KvstoreBackend | undefined;
  /** The recorded Kubernetes; `undefined` if none was loaded. */
  readonly recordedKubernetes?: Pick<RecordedKubernetes, 'apply' | 'delete'> | undefined;
  /** Removes the configuration of a remote cluster. Resolves to false if there is none. */
  leave(cluster: string): Promise<boolean>;
  /** Adds the configuration again. Resolves to false if the cluster is unknown. */
  join(cluster: string): Promise<boolean>;
}

/** Performs a `patch`. Returns the reason if it failed, like {@link replaceText}. */
async function patchKey(kvstore: KvstoreBackend, key: string, patch: unknown): Promise<string | undefined> {
  const current = await kvstore.get(key);
  if (current === undefined) return `key ${key} does not exist`;
  const json: unknown = JSON.parse(textOfBytes(current.value) ?? '');
  await kvstore.update(key, bytesOfText(JSON.stringify(mergePatch(json, patch))));
  return undefined;
}

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
async function perform(action: PlayAction, stage: PlayStage): Promise<string | undefined> {
  if (action.kind === 'leave' || action.kind === 'join') {
    return (await stage[action.kind](action.cluster)) ? undefined : 'not a remote cluster';
  }
  if (action.kind === 'apply' || action.kind === 'remove') {
    if (stage.recordedKubernetes === undefined) return 'no Kubernetes objects are loaded: add --k8s-load';
    return action.kind === 'apply'
      ? stage.recordedKubernetes.apply(action.object)
      : stage.recordedKubernetes.delete(action.object);
  }
  const kvstore = stage.kvstore(action.store);
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
 * Plays a script. For each step, waits, notifies the audience and performs the actions. Reports failed actions and
 * continues. Resolves at the end of the script. If `signal` fires, ends after the actions of the current step. Never
 * rejects.
 */
export async function play(
  steps: readonly PlayStep[],
  stage: PlayStage,
  audience: { onStep(step: PlayStep): void; onFailure(action: PlayAction, reason: string): void },
  clock: Clock,
  signal: AbortSignal,
): Promise<void> {
  for (const step of steps) {
    await sleep(clock, step.after * 1000, signal);
    if (signal.aborted) return;
    audience.onStep(step);
    for (const action of step.actions) {
      const failure = await perform(action, stage).catch((error: unknown) => String(error));
      if (failure !== undefined) audience.onFailure(action, failure);
    }
  }
}
