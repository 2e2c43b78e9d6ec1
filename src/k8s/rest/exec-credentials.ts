import { Buffer } from 'node:buffer';
import { spawn } from 'node:child_process';
import type { Readable } from 'node:stream';
import type { Clock } from '../../base/clock.ts';
import { messageOf } from '../../base/failure.ts';
import { cutText } from '../../base/show-value.ts';
import { parseTime } from '../../base/system-clock.ts';
import { isObject, parseJson } from '../../net/fields.ts';
import { ApiError } from './api-error.ts';
import {
  type ClientCertificate,
  type Credentials,
  isBearerToken,
  type Pem,
  pemBytes,
} from './cluster-access.ts';

/** A credential plugin of a kubeconfig: `users[].user.exec`. */
export interface ExecPlugin {
  readonly apiVersion: string;
  readonly command: string;
  readonly args: readonly string[];
  readonly env: Readonly<Record<string, string>>;
  readonly installHint: string | undefined;
  /** Working directory of the plugin: the folder of the kubeconfig. */
  readonly folder: string;
  /** Cluster information for the plugin, without `ca`, if the kubeconfig requests it. */
  readonly cluster: Readonly<Record<string, unknown>> | undefined;
  readonly ca: Pem | undefined;
}

/** The output of a plugin. */
interface Credential {
  readonly token: string | undefined;
  readonly certificate: ClientCertificate | undefined;
  /** Wall time in milliseconds since the epoch; `undefined` if the credential does not expire. */
  readonly expiresAt: number | undefined;
}

/** Maximum time for which a plugin runs. */
const TIMEOUT_MS = 60_000;
const MAX_OUTPUT_BYTES = 1024 * 1024;

/**
 * The credentials of a plugin, cached until they expire or a server rejects them. Concurrent callers share one run of
 * the plugin. Interactive plugins are not supported, because there is no terminal.
 */
export class ExecCredentials implements Credentials {
  readonly #plugin: ExecPlugin;
  readonly #clock: Pick<Clock, 'wallTime' | 'after'>;
  #credential: Credential | undefined;
  /** The current run of the plugin. */
  #running: Promise<Credential> | undefined;

  constructor(plugin: ExecPlugin, clock: Pick<Clock, 'wallTime' | 'after'>) {
    this.#plugin = plugin;
    this.#clock = clock;
  }

  async authorization(): Promise<string | undefined> {
    return bearerOf(await this.#current());
  }

  async certificate(): Promise<ClientCertificate | undefined> {
    return (await this.#current()).certificate;
  }

  refused(authorization: string | undefined, certificate?: ClientCertificate): void {
    const known = this.#credential;
    if (known !== undefined && bearerOf(known) === authorization && known.certificate === certificate)
      this.#credential = undefined;
  }

  async #current(): Promise<Credential> {
    const { expiresAt = Number.POSITIVE_INFINITY } = this.#credential ?? {};
    if (this.#credential !== undefined && this.#clock.wallTime() < expiresAt) return this.#credential;
    this.#running ??= this.#run().finally(() => {
      this.#running = undefined;
    });
    // A new credential is used even if it seems to be expired, because clocks may differ.
    return this.#running;
  }

  async #run(): Promise<Credential> {
    const plugin = this.#plugin;
    const output = await runPlugin(plugin, await execInfo(plugin), this.#clock);
    this.#credential = readCredential(plugin, output);
    return this.#credential;
  }
}

function bearerOf({ token }: Credential): string | undefined {
  return token === undefined ? undefined : `Bearer ${token}`;
}

/** Returns the value of `KUBERNETES_EXEC_INFO`. */
async function execInfo({ apiVersion, cluster, ca }: ExecPlugin): Promise<string> {
  const pem = cluster && ca && Buffer.from(await pemBytes(ca)).toString('base64');
  const spec = { interactive: false, cluster: cluster && { ...cluster, 'certificate-authority-data': pem } };
  return JSON.stringify({ kind: 'ExecCredential', apiVersion, spec });
}

/** Runs the plugin, and resolves to its output. */
function runPlugin(plugin: ExecPlugin, info: string, clock: Pick<Clock, 'after'>): Promise<string> {
  const { command, args, env, installHint = '', folder } = plugin;
  return new Promise((resolve, reject) => {
    const child = spawn(command, args, {
      cwd: folder,
      env: { ...process.env, ...env, KUBERNETES_EXEC_INFO: info },
      stdio: ['ignore', 'pipe', 'pipe'],
      detached: true, // leads a process group
    });
    const fail = (why: string): void => {
      timeout.cancel();
      reject(pluginError(plugin, `${why} ${installHint}`));
    };
    const stop = (why: string): void => {
      fail(why);
      killGroup(child.pid);
      // A process that has left the group may keep the output open.
      child.stdout.destroy();
      child.stderr.destroy();
    };
    const timeout = clock.after(TIMEOUT_MS, () => stop(`still running after ${TIMEOUT_MS / 1000} s`));
    child.once('error', (error) => fail(messageOf(error)));
    if (child.pid === undefined) return; // not started; it may have no streams
    const stdout = collect(child.stdout, () => stop('more than 1 MiB in its standard output'));
    const stderr = collect(child.stderr, () => stop('more than 1 MiB in its standard error'));
    child.once('close', (code, signal) => {
      timeout.cancel();
      if (code === 0) resolve(stdout());
      else fail(endOf(code, signal, stderr().trim()));
    });
  });
}

/** Collects the output of a stream. Returns a function that returns it as text. */
function collect(stream: Readable, onTooLarge: () => void): () => string {
  const chunks: Buffer[] = [];
  let length = 0;
  stream.on('data', (bytes: Buffer) => {
    chunks.push(bytes);
    length += bytes.length;
    if (length > MAX_OUTPUT_BYTES) onTooLarge();
  });
  return () => Buffer.concat(chunks).toString();
}

/** Kills the plugin and the processes that it has started. It may ignore SIGTERM. */
function killGroup(pid: number | undefined): void {
  try {
    if (pid !== undefined) process.kill(-pid, 'SIGKILL');
  } catch {
    // The group has ended.
  }
}

/** Returns how a plugin ended. */
function endOf(code: number | null, signal: string | null, stderr: string): string {
  const end = code === null ? `ended by ${signal}` : `exit status ${code}`;
  return stderr === '' ? end : `${end}: ${stderr}`;
}

function pluginError({ command }: ExecPlugin, why: string): ApiError {
  return new ApiError('credentials', `the plugin ${command} failed: ${cutText(why.trim(), 300)}`);
}

function readCredential(plugin: ExecPlugin, output: string): Credential {
  const document = parseJson(output);
  // The output may contain secrets, so it is not shown.
  if (document === undefined) throw pluginError(plugin, 'its output is not JSON');
  const { kind, apiVersion, status } = isObject(document) ? document : {};
  if (kind !== 'ExecCredential') throw pluginError(plugin, 'its output is not an ExecCredential');
  if (apiVersion !== plugin.apiVersion)
    throw pluginError(plugin, `its output has another apiVersion than the kubeconfig, ${plugin.apiVersion}`);
  const { token, clientCertificateData, clientKeyData, expirationTimestamp } = isObject(status) ? status : {};
  const certificate =
    typeof clientCertificateData === 'string' && typeof clientKeyData === 'string'
      ? {
          certificate: { data: Buffer.from(clientCertificateData) },
          key: { data: Buffer.from(clientKeyData) },
        }
      : undefined;
  const bearer = typeof token === 'string' && token !== '' ? token : undefined;
  if (bearer !== undefined && !isBearerToken(bearer))
    throw pluginError(
      plugin,
      'the token in its output has a space, a line break or another invalid character',
    );
  if (bearer === undefined && certificate === undefined)
    throw pluginError(plugin, 'its output has no token and no certificate with a key');
  const hasExpiry = typeof expirationTimestamp === 'string';
  const expiresAt = hasExpiry ? parseTime(expirationTimestamp) : undefined;
  if (hasExpiry && expiresAt === undefined)
    throw pluginError(plugin, 'its expirationTimestamp is not an RFC 3339 time');
  return { token: bearer, certificate, expiresAt };
}
