import koffi from 'koffi';

/** `CLOCK_THREAD_CPUTIME_ID` of `clock_gettime(2)` on Linux. */
const THREAD_CPU_TIME = 3;

const readClock = koffi.load('libc.so.6').func('int clock_gettime(int, void *)');
const time = new BigInt64Array(2);

/** Returns the CPU milliseconds of this thread, without those of the threads of the collector and the compiler. */
export function threadMs(): number {
  readClock(THREAD_CPU_TIME, time);
  return Number(time[0]) * 1e3 + Number(time[1]) / 1e6;
}

/** Returns the CPU milliseconds of all threads of the process. */
export function processMs(): number {
  const { user, system } = process.cpuUsage();
  return (user + system) / 1e3;
}
