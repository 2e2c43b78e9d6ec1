import { describeApiContract } from '../k8s/support/api-contract.ts';
import { RealApiServer } from './support/real-apiserver.ts';

describeApiContract('a real kube-apiserver', () => RealApiServer.start());
