import type { PortProtocol } from '../net/port.ts';
import type { AnnouncedService } from './announcement.ts';
import type { Backend } from './backend.ts';

/** The address and port of one backend for a service's port. */
export interface ResolvedBackend extends PortProtocol {
  /** Canonical. */
  readonly address: string;
  /** The name of the service's port. */
  readonly portName: string;
  readonly backend: Backend;
}

/** Returns the effective backends at a port of the service, by name or number; `undefined` if it has no such port. */
export function resolvePort(
  { service, endpoints }: AnnouncedService,
  requested: string | number,
): readonly ResolvedBackend[] | undefined {
  const names = [...service.ports].flatMap(([name, { port }]) =>
    (typeof requested === 'string' ? name : port) === requested ? [name] : [],
  );
  if (names.length === 0) return undefined;
  const resolved: ResolvedBackend[] = [];
  for (const backend of endpoints.backends.values()) {
    for (const portName of names) {
      const target = backend.ports.get(portName);
      if (target === undefined) continue;
      const { port, protocol } = target;
      resolved.push({ address: backend.address, portName, port, protocol, backend });
    }
  }
  return resolved;
}
