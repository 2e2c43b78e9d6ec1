import { afterAll } from 'vitest';
import { backendContract } from '../contract.ts';
import { disposeSharedEtcd, etcdKvstore } from './etcd-harness.ts';

afterAll(disposeSharedEtcd);

backendContract('etcd', etcdKvstore);
