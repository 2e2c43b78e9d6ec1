// Serves and asks, in a process of its own, so that it can be put into a cgroup and a network namespace. Takes commands
// as lines of JSON, `{ id, do, … }`, and answers each with a line, `{ id, … }`.
import dgram from 'node:dgram';
import net from 'node:net';
import { createInterface } from 'node:readline';

const held = new Map();
let load;

/** Says its name to whoever connects, and echoes what it is sent after that. */
function serve({ protocol, ip, port }) {
  const name = `${ip}:${port}`;
  return new Promise((resolve, reject) => {
    if (protocol === 'tcp') {
      const server = net.createServer((socket) => {
        socket.on('error', () => {});
        socket.on('end', () => socket.end());
        socket.write(`${name}\n`);
        socket.on('data', (data) => socket.write(data));
      });
      server.on('error', reject);
      server.listen(port, ip, () => resolve({}));
    } else {
      const socket = dgram.createSocket(ip.includes(':') ? 'udp6' : 'udp4');
      socket.on('message', (_, from) => socket.send(name, from.port, from.address));
      socket.on('error', reject);
      socket.bind(port, ip, () => resolve({}));
    }
  });
}

/** The name of who answers, and the address that the socket believes to speak to. */
function ask(ip, port) {
  return new Promise((resolve) => {
    const socket = net.connect({ host: ip, port });
    socket.on('error', (error) => resolve({ error: error.code }));
    socket.once('data', (data) => {
      const peer = `${socket.remoteAddress} ${socket.remotePort}`;
      socket.end();
      socket.once('close', () => resolve({ name: String(data).trim(), peer }));
      socket.resume();
    });
  });
}

/** A datagram; `connected` sockets have one peer, others are told it with each datagram. */
function askDatagram(ip, port, connected) {
  return new Promise((resolve) => {
    const socket = dgram.createSocket(ip.includes(':') ? 'udp6' : 'udp4');
    const end = (answer) => {
      socket.close();
      resolve(answer);
    };
    socket.on('error', (error) => end({ error: error.code }));
    socket.on('message', (data, from) => end({ name: String(data), peer: `${from.address} ${from.port}` }));
    const sent = (error) => error && end({ error: error.code });
    if (!connected) socket.send('?', port, ip, sent);
    else
      socket.connect(port, ip, (error) => {
        if (error) end({ error: error.code });
        else socket.send('?', sent);
      });
  });
}

/** How often each name, peer and error came in `count` questions, some at a time. */
async function askMany({ protocol, ip, port, count }) {
  const counts = {};
  let left = count;
  const worker = async () => {
    while (left-- > 0) {
      const answer =
        protocol === 'tcp' ? await ask(ip, port) : await askDatagram(ip, port, protocol === 'connected-udp');
      const text = answer.error ?? `${answer.name} as ${answer.peer}`;
      counts[text] = (counts[text] ?? 0) + 1;
    }
  };
  await Promise.all(Array.from({ length: 8 }, worker));
  return { counts };
}

const COMMANDS = {
  serve,
  ask: askMany,
  /** Opens a connection that stays. */
  hold: ({ ip, port }) =>
    new Promise((resolve) => {
      const socket = net.connect({ host: ip, port });
      socket.on('error', (error) => resolve({ error: error.code }));
      socket.once('data', (data) => {
        held.set(`${ip} ${port}`, socket);
        resolve({ name: String(data).trim() });
      });
    }),
  /** Sends something over the connection that stays. */
  echo: ({ ip, port }) =>
    new Promise((resolve) => {
      const socket = held.get(`${ip} ${port}`);
      socket.once('data', (data) => resolve({ echo: String(data) }));
      socket.write('still here');
    }),
  /** Connects again and again until it is stopped; `begun` connections are over before it answers. */
  load: async ({ ip, port, begun }) => {
    const state = { connections: 0, errors: 0, stopped: false };
    let isBegun = () => {};
    const enough = new Promise((resolve) => {
      isBegun = resolve;
    });
    const worker = async () => {
      while (!state.stopped) {
        const { error } = await ask(ip, port);
        state.connections++;
        if (error) state.errors++;
        if (state.connections === begun) isBegun();
      }
    };
    load = { state, over: Promise.all(Array.from({ length: 4 }, worker)) };
    await enough;
    return {};
  },
  connections: async () => ({ connections: load.state.connections }),
  stop: async () => {
    load.state.stopped = true;
    await load.over;
    return { connections: load.state.connections, errors: load.state.errors };
  },
};

for await (const line of createInterface({ input: process.stdin })) {
  const { id, do: command, ...rest } = JSON.parse(line);
  COMMANDS[command](rest).then(
    (answer) => process.stdout.write(`${JSON.stringify({ id, ...answer })}\n`),
    (error) => process.stdout.write(`${JSON.stringify({ id, error: String(error) })}\n`),
  );
}
process.exit(0);
