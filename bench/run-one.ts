import { BENCHES, type BenchOptions } from './catalog.ts';

// node --expose-gc run-one.js NAME OPTIONS: one bench in this process; `bench-process.ts` starts it.
const [name = '', json = '{}'] = process.argv.slice(2);
const options: BenchOptions = JSON.parse(json);
const result = await BENCHES[name]?.run(options);
if (options.json) process.stdout.write(`${JSON.stringify(result)}\n`);
