import type { Fields, RejectField } from '../../net/fields.ts';
import type { PortProtocol } from '../../net/port.ts';
import { type PortConfiguration, readPort } from './ports.ts';

/** The pod of an IP, as its writer knew it. */
export interface PodMetadata {
  readonly namespace: string;
  readonly podName: string;
  /** Since 1.19; absent if the value has none. */
  readonly serviceAccount?: string | undefined;
  readonly namedPorts?: ReadonlyMap<string, PortProtocol> | undefined;
}

/** Returns the pod with these names and ports; `undefined` if all names are empty and there are no ports. */
export function podOf(
  namespace: string,
  podName: string,
  serviceAccount: string,
  namedPorts: PortConfiguration | undefined,
): PodMetadata | undefined {
  if (serviceAccount !== '')
    return namedPorts === undefined
      ? { namespace, podName, serviceAccount }
      : { namespace, podName, serviceAccount, namedPorts };
  if (namespace === '' && podName === '' && namedPorts === undefined) return undefined;
  return namedPorts === undefined ? { namespace, podName } : { namespace, podName, namedPorts };
}

/**
 * Returns the ports in the field `NamedPorts`; `undefined` if there are none. Rejects a list of more than `maxPorts`.
 */
export function readNamedPorts(
  fields: Fields<never>,
  maxPorts: number,
  drop: RejectField<undefined>,
): PortConfiguration | undefined {
  if (fields.value('NamedPorts') === undefined) return undefined;
  const list = fields.list('NamedPorts', maxPorts);
  if (list.size === 0) return undefined;
  const ports = new Map<string, PortProtocol>();
  for (let index = 0; index < list.size; index++) {
    const item = list.item(index);
    const port = readPort(item, drop);
    if (port !== undefined) ports.set(item.string('Name') ?? '', port);
  }
  return ports.size === 0 ? undefined : ports;
}
