import { createHash } from 'node:crypto';
import { type FSWatcher, watch } from 'node:fs';
import { lstat, readdir } from 'node:fs/promises';
import { basename, join, resolve } from 'node:path';
import { checkArgument, FUNCTION, TEXT } from '../base/arguments.ts';
import { errorCode, messageOf } from '../base/failure.ts';
import { NotAFileError, readFileHead } from '../base/files/regular-file.ts';
import { type Unsubscribe, unsubscribeOnce } from '../base/subscription.ts';
import type { ConfigFile, ConfigListing } from '../clustermesh/config-directory.ts';
import type { ConfigSource } from '../clustermesh/config-follower.ts';
import type { EtcdConfig } from '../kvstore/etcd/etcd-config.ts';
import { loadEtcdConfig, MAX_CONFIG_BYTES, type ReadPem, readPem } from '../kvstore/etcd/etcd-config-file.ts';
import type { KvstoreBackend } from '../kvstore/session/backend.ts';
import { unreadable } from './input-error.ts';

const BROKEN_LINK: ConfigFile = { kind: 'unusable', reason: 'broken symbolic link' };

/** Spellings of the key by which an etcd configuration is recognized. */
const ENDPOINTS_KEYS = ['endpoints', '"endpoints"', "'endpoints'"];

/** Returns true if a line begins with `endpoints:`. Linear in the text, whatever its contents. */
function hasEndpoints(text: string): boolean {
  return text.split('\n').some((line) => {
    const colon = line.indexOf(':');
    return colon >= 0 && ENDPOINTS_KEYS.includes(line.slice(0, colon).trim());
  });
}

/** Returns true if the path exists, even as a dangling link. */
function exists(path: string): Promise<boolean> {
  return lstat(path).then(
    () => true,
    () => false,
  );
}

/** Returns a hash of all parts and their lengths, so that a text moved from one part to the next changes the hash. */
function hashOf(parts: readonly (string | Uint8Array)[]): string {
  const hash = createHash('sha256');
  for (const part of parts) hash.update(`${Buffer.byteLength(part)}:`).update(part);
  return hash.digest('hex');
}

/** A loaded configuration, with the contents of its files. */
interface KnownConfig {
  readonly content: string;
  /** Files named by the configuration. */
  readonly files: readonly string[];
  readonly file: ConfigFile & { readonly kind: 'config' };
}

/** Returns a reader of files. It reads each file once, even if several configurations name it. */
function readingOnce(): ReadPem {
  const read = new Map<string, Promise<Buffer>>();
  return (path) => {
    const known = read.get(path) ?? readPem(path);
    read.set(path, known);
    return known;
  };
}

/**
 * A folder with one etcd configuration for each remote cluster, named after the cluster. Kubernetes mounts such a
 * folder from a secret. Its files are links through `..data`, and an update replaces the link `..data`. Therefore the
 * folder is watched instead of the files, and the contents of the files and their certificates are compared.
 */
export class ConfigFolder implements ConfigSource {
  readonly #path: string;
  readonly #connect: (config: EtcdConfig) => KvstoreBackend;
  /** The configurations of the last listing, by file name. */
  #known: ReadonlyMap<string, KnownConfig> = new Map();
  #watcher: FSWatcher | undefined;
  #onChange: (() => void) | undefined;

  /** @param connect returns a client of the kvstore of a file */
  constructor(path: string, connect: (config: EtcdConfig) => KvstoreBackend) {
    checkArgument('new ConfigFolder: path', path, TEXT);
    checkArgument('new ConfigFolder: connect', connect, FUNCTION);
    this.#path = resolve(path);
    this.#connect = connect;
  }

  async list(): Promise<ConfigListing> {
    this.#startWatcher();
    const names = (await readdir(this.#path)).filter((name) => !name.startsWith('..')).sort();
    const read = readingOnce();
    const known = new Map<string, KnownConfig>();
    const files = await Promise.all(
      names.map(async (name) => [name, await this.#read(name, read, known)] as const),
    );
    this.#known = known;
    return new Map(files.flatMap(([name, file]) => (file === undefined ? [] : [[name, file] as const])));
  }

  watch(onChange: () => void): Unsubscribe {
    this.#onChange = onChange;
    this.#startWatcher();
    return unsubscribeOnce(() => {
      this.#onChange = undefined;
      this.#stopWatcher();
    });
  }

  /** Starts the watcher unless it runs. If the folder does not exist, the next listing tries again. */
  #startWatcher(): void {
    if (this.#watcher !== undefined || this.#onChange === undefined) return;
    try {
      const watcher = watch(this.#path, { persistent: false }, (event, name) => {
        // The folder itself was moved or deleted, so this watcher receives no further events.
        if (event === 'rename' && name === basename(this.#path)) this.#stopWatcher();
        this.#onChange?.();
      });
      watcher.on('error', () => {
        this.#stopWatcher();
        this.#onChange?.();
      });
      this.#watcher = watcher;
    } catch {
      this.#watcher = undefined; // `list` reports the problem of the folder
    }
  }

  #stopWatcher(): void {
    this.#watcher?.close();
    this.#watcher = undefined;
  }

  /** Reads one file of the folder. Returns undefined if it was deleted after the listing. */
  async #read(name: string, read: ReadPem, known: Map<string, KnownConfig>): Promise<ConfigFile | undefined> {
    const path = join(this.#path, name);
    try {
      const { bytes, isWhole } = await readFileHead(path, MAX_CONFIG_BYTES);
      const content = bytes.toString('utf8');
      if (!hasEndpoints(content)) return { kind: 'other' };
      if (!isWhole) return { kind: 'unusable', reason: 'the file is larger than 64 KiB' };
      const previous = this.#known.get(name);
      const config =
        previous !== undefined && (await isUnchanged(previous, content, read))
          ? previous
          : await this.#load(content, read);
      known.set(name, config);
      return config.file;
    } catch (error) {
      if (errorCode(error) === 'ENOENT') return (await exists(path)) ? BROKEN_LINK : undefined;
      // Cilium ignores folders, too, for example links to folders of a projected volume.
      if (error instanceof NotAFileError && error.isFolder) return { kind: 'other' };
      return { kind: 'unusable', reason: messageOf(error) };
    }
  }

  async #load(content: string, read: ReadPem): Promise<KnownConfig> {
    const { config, files, parts } = await loadEtcdConfig(content, read);
    const connect = (): KvstoreBackend => this.#connect(config);
    return { content, files, file: { kind: 'config', hash: hashOf(parts), connect } };
  }
}

/**
 * Returns true if the configuration and its files still have the same contents. Comparing bytes costs less than parsing
 * and checking certificates again.
 */
async function isUnchanged(previous: KnownConfig, content: string, read: ReadPem): Promise<boolean> {
  if (content !== previous.content) return false;
  try {
    const parts = await Promise.all(previous.files.map((path) => read(path)));
    return hashOf([content, ...parts]) === previous.file.hash;
  } catch {
    return false; // loading reports the problem
  }
}

/** Reads the folder of `--clustermesh-config` once, without connections to its kvstores. Throws `InputError`. */
export async function listConfigFolder(path: string): Promise<ConfigListing> {
  try {
    return await new ConfigFolder(path, () => {
      throw new Error('only the files are listed');
    }).list();
  } catch (cause) {
    throw unreadable('--clustermesh-config', path, cause);
  }
}
