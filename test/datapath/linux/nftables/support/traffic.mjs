// Runs in the namespace under test: backends that say who they are, and clients. One command a line, one answer a line.
import { createSocket } from 'node:dgram';
import { connect, createServer } from 'node:net';
import { createInterface } from 'node:readline';

const open = new Map();

/** A connection, and what the backend says. */
function dial({ ip: host, port, from: localAddress }, progressTimeoutMs = 30_000) {
  return new Promise((resolve) => {
    const socket = connect({ host, port, localAddress });
    socket.once('data', (name) => resolve({ socket, name: String(name) }));
    socket.once('error', ({ code }) => resolve({ socket, name: code }));
    socket.setTimeout(progressTimeoutMs, () => resolve({ socket, name: 'timeout' }));
  });
}

function ask(host, port) {
  return new Promise((resolve) => {
    const socket = createSocket(host.includes(':') ? 'udp6' : 'udp4');
    socket.once('message', (name) => {
      socket.close();
      resolve(String(name));
    });
    socket.send('?', port, host);
  });
}

const commands = {
  async listen({ ip, port }) {
    const name = `${ip.includes(':') ? `[${ip}]` : ip}:${port}`;
    const server = createServer((socket) => {
      socket.on('error', () => {});
      socket.write(name);
      socket.on('data', () => socket.write(name));
    });
    await new Promise((resolve) => server.listen(port, ip, resolve));
    const datagrams = createSocket(ip.includes(':') ? 'udp6' : 'udp4');
    datagrams.on('message', (_, from) => datagrams.send(name, from.port, from.address));
    await new Promise((resolve) => datagrams.bind(port, ip, resolve));
    return name;
  },
  /** How often who has answered. */
  async count({ ip, port, from, times, udp, progressTimeoutMs }) {
    const counts = {};
    for (let done = 0; done < times; done += 50) {
      const names = await Promise.all(
        Array.from({ length: Math.min(50, times - done) }, async () => {
          if (udp) return ask(ip, port);
          const { socket, name } = await dial({ ip, port, from }, progressTimeoutMs);
          socket.resetAndDestroy();
          return name;
        }),
      );
      for (const name of names) counts[name] = (counts[name] ?? 0) + 1;
    }
    return counts;
  },
  /** Opens a connection, and keeps it. */
  async keep(place) {
    const { socket, name } = await dial(place);
    open.set(name, socket);
    return name;
  },
  /** Asks again over a connection that was kept. */
  again({ name }) {
    return new Promise((resolve) => {
      open.get(name).once('data', (answer) => resolve(String(answer)));
      open.get(name).write('?');
    });
  },
};

// Commands run concurrently, and are answered in their order.
let answered = Promise.resolve();
for await (const line of createInterface({ input: process.stdin })) {
  const { command, ...words } = JSON.parse(line);
  const answer = commands[command](words);
  answered = answered.then(async () => console.log(JSON.stringify(await answer)));
}
process.exit(0);
