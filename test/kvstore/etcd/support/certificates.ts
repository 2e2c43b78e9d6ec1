import { execFileSync } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { runFolder } from '../../../base/support/run-folder.ts';

/** Paths of a certificate and its key. */
export interface CertificateFiles {
  readonly certificate: string;
  readonly key: string;
}

const openssl = (...words: string[]): void => {
  execFileSync('openssl', words, { stdio: 'ignore' });
};

/** An EC key: creating an RSA key takes a hundred times as long. */
const NEW_KEY = ['-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1', '-nodes'];

/** A certificate authority in a separate folder, made with openssl. */
export class TestAuthority {
  readonly folder: string;
  readonly ca: string;
  readonly #key: string;
  #count = 0;

  constructor(name: string) {
    this.folder = runFolder('etcd-ca-');
    this.ca = join(this.folder, 'ca.pem');
    this.#key = join(this.folder, 'ca.key');
    openssl(
      ...['req', '-x509', ...NEW_KEY, '-days', '2', '-subj', `/CN=${name}`],
      ...['-keyout', this.#key, '-out', this.ca],
    );
  }

  /** A certificate for 127.0.0.1, for servers and clients. If `days` is negative, it has expired. */
  issue(name: string, days = 2, names = 'IP:127.0.0.1'): CertificateFiles {
    const base = join(this.folder, `${name}-${++this.#count}`);
    const files = { certificate: `${base}.pem`, key: `${base}.key` };
    writeFileSync(`${base}.ext`, `subjectAltName=${names}\nextendedKeyUsage=serverAuth,clientAuth\n`);
    openssl(...['req', ...NEW_KEY, '-subj', `/CN=${name}`, '-keyout', files.key, '-out', `${base}.csr`]);
    openssl(
      ...['x509', '-req', '-in', `${base}.csr`, '-CA', this.ca, '-CAkey', this.#key, '-CAcreateserial'],
      ...['-days', String(days), '-extfile', `${base}.ext`, '-out', files.certificate],
    );
    return files;
  }
}
