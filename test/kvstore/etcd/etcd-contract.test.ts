import { afterAll } from 'vitest';
import { backendContract } from '../support/contract.ts';
import { disposeSharedEtcd, etcdKvstore } from './support/etcd-harness.ts';

afterAll(disposeSharedEtcd);

backendContract('etcd', etcdKvstore);
