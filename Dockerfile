# The `toolrunner` command: brokers, runners and the client commands.
#
#   docker build -t toolrunner:0.1.0 .
#   docker run --rm toolrunner:0.1.0 --help
#
# Three stages: production dependencies and nothing else, the packages as they would be published, and what runs.
ARG NODE_VERSION=20.20.2
ARG DEBIAN=bookworm

FROM node:${NODE_VERSION}-${DEBIAN} AS manifests
WORKDIR /opt/toolrunner
# The lock file is for all packages of the repository, so npm wants to see each one's manifest.
COPY package.json package-lock.json .npmrc ./
COPY agent-sdk/package.json agent-sdk/
COPY bench/package.json bench/
COPY broker/package.json broker/
COPY cli/package.json cli/
COPY cli/bin cli/bin/
COPY proto/package.json proto/
COPY runner-sdk/package.json runner-sdk/
COPY runners/backend/package.json runners/backend/
COPY runners/browser/package.json runners/browser/
COPY runners/desktop/package.json runners/desktop/
COPY test/package.json test/

FROM manifests AS dependencies
# better-sqlite3 is the one package that is compiled. It is built from its source, which the lock file has the digest of, against
# this very Node's headers: a ready-made binary would be downloaded from elsewhere, unchecked.
ENV npm_config_build_from_source=true \
    npm_config_nodedir=/usr/local \
    npm_config_update_notifier=false
COPY deploy/prune-modules.mjs /tmp/
RUN npm ci --omit=dev --ignore-scripts --workspace=@toolrunner/cli \
 && npm rebuild better-sqlite3 \
 && node /tmp/prune-modules.mjs . \
 && cd node_modules/better-sqlite3 \
 && mv build/Release/better_sqlite3.node /tmp/ \
 && rm -rf build deps src \
 && mkdir -p build/Release \
 && mv /tmp/better_sqlite3.node build/Release/ \
 && cd ../.. \
 && mkdir /modules \
 && find . -name node_modules -prune -exec cp -a --parents {} /modules ';'

FROM manifests AS packages
RUN npm ci --ignore-scripts
COPY . .
# What is packed is what each package's manifest publishes: no sources, no tests.
RUN npx tsc -b cli \
 && mkdir -p /packages/packed \
 && for package in proto broker runner-sdk agent-sdk runners/backend cli; do \
      npm pack --silent --ignore-scripts --workspace="$package" --pack-destination /packages/packed || exit 1; \
      mkdir -p "/packages/tree/$package"; \
      tar -xzf /packages/packed/*.tgz --strip-components=1 -C "/packages/tree/$package" || exit 1; \
      rm /packages/packed/*.tgz; \
    done

FROM node:${NODE_VERSION}-${DEBIAN}-slim
# tini: as process 1, Node would not end at signals before it has handlers for them, and would leave orphans of tools as zombies.
RUN apt-get update \
 && apt-get install -y --no-install-recommends tini \
 && rm -rf /var/lib/apt/lists/* /var/log/apt /var/log/dpkg.log /var/cache/debconf/*-old \
 && rm -rf /usr/local/lib/node_modules/npm /usr/local/bin/npm /usr/local/bin/npx /opt/yarn* /usr/local/bin/yarn* \
 && install -d -o 1000 -g 1000 -m 0700 /var/lib/toolrunner /var/lib/toolrunner/keys /var/lib/toolrunner/journal /var/lib/toolrunner/data
WORKDIR /opt/toolrunner
COPY --from=dependencies /modules ./
COPY --from=packages /packages/tree ./
COPY LICENSE ./
COPY deploy/healthcheck.mjs deploy/provision.mjs deploy/
RUN ln -s /opt/toolrunner/cli/bin/toolrunner.js /usr/local/bin/toolrunner
ENV NODE_ENV=production
# A number, so that an orchestrator can see that it is not root.
USER 1000:1000
WORKDIR /var/lib/toolrunner
EXPOSE 7070 7071
STOPSIGNAL SIGTERM
# Whether the process is to be restarted. Take it out of rotation by /readyz: `healthcheck.mjs /readyz`; of a runner, by its ready file.
HEALTHCHECK --interval=10s --timeout=4s --start-period=20s --retries=3 CMD ["node", "/opt/toolrunner/deploy/healthcheck.mjs"]
ENTRYPOINT ["tini", "--", "toolrunner"]
CMD ["--help"]
ARG VERSION=0.1.0
ARG REVISION=unknown
LABEL org.opencontainers.image.title="ToolRunner" \
      org.opencontainers.image.description="The execution plane for the tools that AI agents call: broker, runner and command." \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
