import { bytesOfKey } from '../../../src/kvstore/codec/bytes.ts';
import { boolField, bytesField, message, numberField } from '../../../src/kvstore/codec/proto-writer.ts';
import { decodeRange } from '../../../src/kvstore/etcd/messages.ts';
import type { RangeResponse, Transport, WatchStream } from '../../../src/kvstore/session/transport.ts';

function encoded({ header, kvs, more, count }: RangeResponse): RangeResponse {
  const keys = kvs.map(({ key, value, createRevision, modRevision }) =>
    bytesField(
      2,
      message(
        ...[bytesField(1, bytesOfKey(key)), numberField(2, createRevision)],
        ...[numberField(3, modRevision), bytesField(5, value)],
      ),
    ),
  );
  const buffer = message(...keys, boolField(3, more), numberField(4, count));
  return { ...decodeRange(buffer), header };
}

/** Returns a transport whose streams answer reads as etcd does: in bytes that are decoded while they are compared. */
export function encodedAnswers(transport: Transport): Transport {
  const watch: Transport['watch'] = (request, observer) => {
    const stream = transport.watch(request, observer);
    const range: WatchStream['range'] = async (read, options) => encoded(await stream.range(read, options));
    return new Proxy(stream, {
      get: (_, name: keyof WatchStream) => (name === 'range' ? range : stream[name].bind(stream)),
    });
  };
  return new Proxy(transport, {
    get: (_, name: keyof Transport) => (name === 'watch' ? watch : transport[name].bind(transport)),
  });
}
