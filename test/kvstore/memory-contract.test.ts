import { backendContract } from './contract.ts';
import { memoryKvstore } from './memory-harness.ts';

backendContract('memory', memoryKvstore);
