import { createHash } from 'node:crypto';
import { type FSWatcher, watch } from 'node:fs';
import { lstat, readdir, readFile, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { type Unsubscribe, unsubscribeOnce } from '../base/subscription.ts';
import type { ConfigFile, ConfigListing } from '../clustermesh/config-directory.ts';
import type { ConfigSource } from '../clustermesh/config-follower.ts';
import type { KvstoreBackend } from '../kvstore/backend.ts';
import type { EtcdConfig } from '../kvstore/etcd/etcd-config.ts';
import { loadEtcdConfig } from '../kvstore/etcd/etcd-config-file.ts';

/** A configuration says so, at the beginning of a line. */
const ENDPOINTS = /^\s*["']?endpoints["']?\s*:/m;

/** A configuration is a page of text; whatever is larger is none. */
const MAX_BYTES = 1 << 20;

const DANGLING: ConfigFile = { kind: 'unusable', why: 'it is a link that leads nowhere' };

function isGone(error: unknown): boolean {
  return error instanceof Error && 'code' in error && error.code === 'ENOENT';
}

/** Whether there is an entry of that name, be it a link that leads nowhere. */
function exists(path: string): Promise<boolean> {
  return lstat(path).then(
    () => true,
    () => false,
  );
}

/** The parts are told apart by their lengths, so that no text can move from one to the other unseen. */
function hashOf(parts: readonly (string | Buffer)[]): string {
  const hash = createHash('sha256');
  for (const part of parts) hash.update(`${Buffer.byteLength(part)}:`).update(part);
  return hash.digest('hex');
}

/**
 * A folder with one etcd configuration for each remote cluster, named as the cluster, as Kubernetes mounts it from a
 * secret: there the files are links through `..data`, which is what is replaced when the secret changes. So the
 * folder is watched and not its files, and what is compared is their content, with the certificates they name.
 */
export class ConfigFolder implements ConfigSource {
  readonly #path: string;
  readonly #connect: (config: EtcdConfig) => KvstoreBackend;
  #watcher: FSWatcher | undefined;
  #onChange: (() => void) | undefined;

  /** @param connect makes a client of the kvstore that a file describes */
  constructor(path: string, connect: (config: EtcdConfig) => KvstoreBackend) {
    this.#path = path;
    this.#connect = connect;
  }

  async list(): Promise<ConfigListing> {
    this.#arm();
    const names = (await readdir(this.#path)).filter((name) => !name.startsWith('..')).sort();
    const files = await Promise.all(names.map(async (name) => [name, await this.#read(name)] as const));
    return new Map(files.flatMap(([name, file]) => (file === undefined ? [] : [[name, file] as const])));
  }

  watch(onChange: () => void): Unsubscribe {
    this.#onChange = onChange;
    this.#arm();
    return unsubscribeOnce(() => {
      this.#onChange = undefined;
      this.#disarm();
    });
  }

  /** A folder that is not there, or not any more, is watched as soon as a listing finds it again. */
  #arm(): void {
    if (this.#watcher !== undefined || this.#onChange === undefined) return;
    try {
      const watcher = watch(this.#path, { persistent: false }, (event, name) => {
        // The folder itself has been moved or deleted: this watcher will tell nothing more.
        if (event === 'rename' && name !== null && this.#path.endsWith(`/${name}`)) this.#disarm();
        this.#onChange?.();
      });
      watcher.on('error', () => {
        this.#disarm();
        this.#onChange?.();
      });
      this.#watcher = watcher;
    } catch {
      this.#watcher = undefined; // `list` says what is wrong with the folder
    }
  }

  #disarm(): void {
    this.#watcher?.close();
    this.#watcher = undefined;
  }

  /** Undefined for what is no file, or has gone meanwhile. */
  async #read(name: string): Promise<ConfigFile | undefined> {
    const path = join(this.#path, name);
    try {
      const found = await stat(path);
      if (!found.isFile()) return undefined;
      if (found.size > MAX_BYTES) return { kind: 'other' };
      const content = await readFile(path, 'utf8');
      if (!ENDPOINTS.test(content)) return { kind: 'other' };
      const { config, parts } = await loadEtcdConfig(content);
      return { kind: 'config', hash: hashOf(parts), connect: () => this.#connect(config) };
    } catch (error) {
      if (isGone(error)) return (await exists(path)) ? DANGLING : undefined;
      return { kind: 'unusable', why: error instanceof Error ? error.message : String(error) };
    }
  }
}
