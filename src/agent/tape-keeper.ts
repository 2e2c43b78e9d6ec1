import type { TapeDocument } from '../api/status-document.ts';
import { formatLabels, type Labels } from '../model/labels.ts';
import type { Step } from '../process/start-step.ts';
import { version } from '../process/version.ts';
import { Tape } from '../tape/tape.ts';
import type { TapedKubernetes } from '../tape/tape-settings.ts';
import type { AgentEngines, AgentParts } from './agent.ts';
import { FolderLock } from './folder-lock.ts';
import type { AgentOptions, KubernetesOptions } from './options.ts';
import { StateFiles } from './state-files.ts';

export interface TapeKeeperContext extends Pick<AgentParts, 'clock' | 'log' | 'gate'> {
  readonly engines: Pick<AgentEngines, 'ipcache'>;
  readonly labelsOf: (identity: number) => Labels | undefined;
}

/** Returns the settings that a replay uses. */
function tapedSettings(options: KubernetesOptions): TapedKubernetes {
  const { watch, endpoints, identities, serviceProxyName, headlessServices, nodeAnnotations, encryptKey } =
    options;
  return { watch, endpoints, identities, serviceProxyName, headlessServices, nodeAnnotations, encryptKey };
}

/** Writes the tape of an agent. */
export class TapeKeeper {
  readonly tape: Tape;
  readonly #lock: FolderLock;
  readonly #options: NonNullable<AgentOptions['tape']>;

  constructor(agent: AgentOptions, options: NonNullable<AgentOptions['tape']>, context: TapeKeeperContext) {
    const { clusterName, clusterID = 0, nodeName, maxConnectedClusters, network, serviceV2 = 'auto' } = agent;
    const { kubernetes } = agent;
    const { path, maxBytes } = options;
    const { clock, log, gate, labelsOf } = context;
    const { ipcache } = context.engines;
    this.#options = options;
    this.#lock = new FolderLock('--tape', path, log);
    this.tape = new Tape({
      folder: new StateFiles(path),
      maxBytes,
      settings: {
        clusterName,
        clusterID,
        nodeName,
        maxConnectedClusters,
        network,
        serviceV2,
        kubernetes: kubernetes && tapedSettings(kubernetes),
      },
      version: version(),
      ipcache,
      labelsOf: (identity) => {
        const labels = labelsOf(identity);
        return labels === undefined ? '' : formatLabels(labels);
      },
      clock,
      gate,
      onFailure: (failure) => {
        if (failure === undefined) log.warn(`--tape ${path}: recording again`);
        else log.warn(`--tape ${path}: ${failure.message}; the tape is incomplete until this works again`);
      },
    });
  }

  /**
   * Returns the step which begins the tape before the sources start, and closes it after they have stopped. The start
   * fails with `InputError` if another process writes to the folder, because a replay could not tell their files apart.
   */
  step(): Step {
    return {
      name: 'tape',
      start: async () => {
        await this.#lock.acquire();
        this.tape.start();
      },
      stop: async () => {
        await this.tape.stop();
        await this.#lock.release();
      },
    };
  }

  status(): TapeDocument {
    const { bytes, lines, lost, failure } = this.tape.status();
    const { path: folder, maxBytes } = this.#options;
    return { folder, bytes, maxBytes, lines, lost, ...(failure && { failure: failure.message }) };
  }
}
