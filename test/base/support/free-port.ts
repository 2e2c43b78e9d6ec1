import { createSocket } from 'node:dgram';
import { once } from 'node:events';
import { createServer } from 'node:net';

/** Below those from which systems take the ports of outgoing connections: 32768 and up on Linux, 49152 elsewhere. */
const FIRST = 20_000;
const END = 32_000;

/**
 * A port of 127.0.0.1 on which nobody listens, and which stays the caller's while this process lives, also while what listens
 * there is down: no connection is given it, and no other process that asks here, for its twin of UDP is bound.
 */
export async function freePort(): Promise<number> {
  for (;;) {
    const port = FIRST + Math.floor(Math.random() * (END - FIRST));
    if ((await bindTwin(port)) && (await isFree(port))) return port;
  }
}

async function bindTwin(port: number): Promise<boolean> {
  const socket = createSocket('udp4').unref();
  socket.bind({ address: '127.0.0.1', port, exclusive: true });
  return once(socket, 'listening').then(
    () => true,
    () => {
      socket.close();
      return false;
    },
  );
}

async function isFree(port: number): Promise<boolean> {
  const server = createServer().listen({ host: '127.0.0.1', port, exclusive: true });
  try {
    await once(server, 'listening');
  } catch {
    return false;
  }
  server.close();
  await once(server, 'close');
  return true;
}
