import { backendContract } from './support/contract.ts';
import { memoryKvstore } from './support/memory-harness.ts';

backendContract('memory', memoryKvstore);
