# The image of the agent, the operator and kvstoremesh: docker build -t example.org/dpcache:0.1.0 .
FROM node:24-bookworm-slim AS build
WORKDIR /src
COPY package.json package-lock.json .npmrc ./
RUN npm ci --ignore-scripts
COPY . .
RUN npm run build && npm prune --omit=dev --ignore-scripts

FROM node:24-bookworm-slim
# The initial threshold of the GNU C library. If it is set, it stays fixed, and freed buffers above it leave the process.
ENV NODE_ENV=production MALLOC_MMAP_THRESHOLD_=131072
# Without a memory limit, Node.js 24 lets the young generation of the heap grow to more than 100 MiB.
ENV NODE_OPTIONS=--max-semi-space-size=8
WORKDIR /opt/datapath-cache
COPY --from=build /src/node_modules ./node_modules
COPY --from=build /src/dist ./dist
COPY --from=build /src/package.json /src/LICENSE ./
RUN ln -s /opt/datapath-cache/dist/cli/main.js /usr/local/bin/dpcache
# With --datapath linux, run it as root with CAP_BPF and CAP_NET_ADMIN.
USER 65532:65532
ENTRYPOINT ["dpcache"]
CMD ["--help"]
