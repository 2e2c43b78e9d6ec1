import { readdir, stat } from 'node:fs/promises';
import { messageOf } from '../base/failure.ts';
import { openRegularFile } from '../base/files/regular-file.ts';
import { KubeconfigError, readKubeconfig } from '../k8s/rest/kubeconfig.ts';
import { loadEtcdConfigFile } from '../kvstore/etcd/etcd-config-file.ts';
import { listConfigFolder } from './config-folder.ts';
import { InputError, unreadable } from './input-error.ts';
import { remoteEtcdProblem } from './remote-etcds.ts';
import { readServeOptions, type ServeSource } from './serve-files.ts';

export interface NamedFiles {
  readonly kvstoreConfig?: string | undefined;
  readonly clustermeshConfig?: string | undefined;
  readonly kubeconfig?: string | undefined;
  readonly context?: string | undefined;
  readonly load?: readonly string[] | undefined;
  readonly manifests?: readonly string[] | undefined;
  readonly k8sLoad?: readonly string[] | undefined;
  readonly serve: ServeSource;
}

/**
 * Returns one sentence for each unreadable file, and for each invalid configuration, certificate or token in
 * them. Of recorded keys and manifests, which may be large, only the access is checked. Connects to no server.
 */
export async function namedFileProblems(files: NamedFiles): Promise<readonly string[]> {
  const { kvstoreConfig, clustermeshConfig, kubeconfig, context, load, manifests, k8sLoad, serve } = files;
  const checks: Promise<readonly string[]>[] = [problemOf('', () => readServeOptions(serve))];
  if (kvstoreConfig !== undefined)
    checks.push(problemOf(`--kvstore-config ${kvstoreConfig}: `, () => loadEtcdConfigFile(kvstoreConfig)));
  if (clustermeshConfig !== undefined) checks.push(folderProblems(clustermeshConfig));
  if (kubeconfig !== undefined)
    checks.push(problemOf(`--kubeconfig ${kubeconfig}: `, () => readKubeconfig(kubeconfig, { context })));
  for (const [option, paths = []] of [
    ['--load', load],
    ['--manifests', manifests],
    ['--k8s-load', k8sLoad],
  ] as const)
    for (const path of paths) checks.push(problemOf('', () => checkAccess(option, path)));
  return (await Promise.all(checks)).flat();
}

/**
 * Returns the message of the error of `read`; nothing if it succeeds. The message begins with `what`, unless the
 * error is an `InputError`.
 */
async function problemOf(what: string, read: () => Promise<unknown>): Promise<readonly string[]> {
  try {
    await read();
    return [];
  } catch (error) {
    if (error instanceof InputError) return [error.message];
    if (error instanceof KubeconfigError && error.rejections.length > 0)
      return error.rejections.map(({ message }) => `--kubeconfig ${message}`);
    return [`${what}${messageOf(error)}`];
  }
}

async function folderProblems(path: string): Promise<readonly string[]> {
  try {
    const files = await listConfigFolder(path);
    return [...files].flatMap(([name, file]) =>
      file.kind === 'unusable' ? [remoteEtcdProblem(path, name, file.reason)] : [],
    );
  } catch (error) {
    return [messageOf(error)];
  }
}

/** Rejects with `InputError` if a file or folder cannot be opened. */
async function checkAccess(option: string, path: string): Promise<void> {
  try {
    const stats = await stat(path);
    if (stats.isDirectory()) await readdir(path);
    // `--load` may name a pipe, which must not be opened here, because it can be read only once.
    else if (stats.isFile() || option !== '--load') await (await openRegularFile(path)).close();
  } catch (cause) {
    throw unreadable(option, path, cause);
  }
}
