import { createSocket } from 'node:dgram';
import { once } from 'node:events';
import { createServer } from 'node:net';

/** Below the ports for outgoing connections: from 32768 on in Linux, from 49152 elsewhere. */
const FIRST = 20_000;
const END = 32_000;

/**
 * Returns a free port of 127.0.0.1. It stays reserved while this process lives, even if its server is down: no outgoing
 * connection uses it, and no other caller gets it, because the UDP port of the same number is bound.
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
