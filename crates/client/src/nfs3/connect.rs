//! Connections to an NFSv3 server: at the URL's port, 2049, or the port that rpcbind knows.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use proto::{nfs3, rpcbind};
use rpc::client::{Client, Request};
use rpc::message::Credential as WireCredential;
use xdr::Decoder;

use super::Nfs3;
use super::mount::{MountClient, mount};
use crate::connection::{connect_to_any, resolve, rpc_options};
use crate::error::Result;
use crate::options::Options;
use crate::protocol::{Mounted, Protocol};
use crate::url::Url;
use crate::user::User;

impl Nfs3 {
    /// Connects as `user` and mounts the longest part of the URL's path that the server lets it mount.
    ///
    /// # Errors
    /// [`Error::Resolve`], [`Error::Rpc`], [`Error::Mount`].
    pub(crate) async fn connect(url: &Url, options: Arc<Options>, user: &User) -> Result<Mounted> {
        let rpc = connect_any(url, &options).await?;
        Self::mount(url, rpc, options, user).await
    }

    /// As [`Nfs3::connect`], on the port that rpcbind has for NFSv3. `None` if that is 2049 or there is none,
    /// or the port is given.
    pub(crate) async fn connect_elsewhere(
        url: &Url,
        options: Arc<Options>,
        user: &User,
    ) -> Option<Result<Mounted>> {
        if url.port().or(options.port).is_some() {
            return None;
        }
        let mut registered = registered(&resolve(url, nfs3::PORT).await.ok()?, &options).await;
        registered.retain(|address| address.port() != nfs3::PORT);
        if registered.is_empty() {
            return None;
        }
        let connected =
            connect_to_any(url, &registered, &rpc_options(&options, options.nconnect as usize)).await;
        Some(match connected {
            Ok(rpc) => Self::mount(url, rpc, options, user).await,
            Err(error) => Err(error),
        })
    }

    async fn mount(url: &Url, rpc: Client, options: Arc<Options>, user: &User) -> Result<Mounted> {
        let rpc = Arc::new(rpc);
        let mut client = MountClient { nfs: &rpc, separate: None, options: &options, user };
        let (path, root) = mount(&mut client, url).await?;
        let rest = url.path().get(path.len()..).unwrap_or_default();
        let target = rest.strip_prefix(b"/").unwrap_or(rest).to_vec();
        let nfs = Self {
            attribute_sink: options.attribute_sink.clone(),
            mount_address: client.separate.map(|client| client.address()),
            mounted: path.clone(),
            has_logged_setacl: AtomicBool::new(false),
            rpc: rpc.clone(),
            options,
        };
        Ok(Mounted {
            protocol: Protocol::Nfs3(nfs),
            rpc,
            path,
            target,
            root,
            had_lane: Arc::default(),
            is_durable: false,
            lacks_path: false,
        })
    }
}

/// A connection to the first of the host's addresses that accepts one.
async fn connect_any(url: &Url, options: &Options) -> Result<Client> {
    let given = url.port().or(options.port);
    let port = given.unwrap_or(nfs3::PORT);
    let addresses = resolve(url, port).await?;
    let rpc_options = rpc_options(options, options.nconnect as usize);
    let failed = match connect_to_any(url, &addresses, &rpc_options).await {
        Err(error) if given.is_none() => error,
        connected => return connected,
    };
    let registered = registered(&addresses, options).await;
    if registered.is_empty() {
        return Err(failed);
    }
    connect_to_any(url, &registered, &rpc_options).await
}

/// The addresses at which rpcbind has NFSv3.
async fn registered(addresses: &[SocketAddr], options: &Options) -> Vec<SocketAddr> {
    let mut registered = Vec::new();
    for address in addresses {
        if let Some(port) = port_from_rpcbind(*address, nfs3::PROGRAM, nfs3::VERSION, options).await {
            registered.push(SocketAddr::new(address.ip(), port));
        }
    }
    registered
}

/// The TCP port of a program; `None` if rpcbind doesn't answer or doesn't know it.
pub(super) async fn port_from_rpcbind(
    server: SocketAddr,
    program: u32,
    version: u32,
    options: &Options,
) -> Option<u16> {
    let address = SocketAddr::new(server.ip(), rpcbind::PORT);
    // There may be no rpcbind: the call is never hard, even if the session is.
    let mut rpc_options = rpc_options(options, 1);
    rpc_options.policy.hard = false;
    rpc_options.reserved_port = rpc::client::ReservedPort::No;
    let client = Client::connect(address, rpc_options).await.ok()?;
    let request = Request {
        program: rpcbind::PROGRAM,
        version: rpcbind::PMAP_VERSION,
        procedure: rpcbind::Procedure::Getaddr.number(),
        credential: &WireCredential::None,
        payload: bytes::Bytes::new(),
        trailer: bytes::Bytes::new(),
        receive: None,
    };
    let mapping = rpcbind::Mapping { prog: program, vers: version, prot: rpcbind::IPPROTO_TCP, port: 0 };
    let reply = client.call(request, |to| to.put(&mapping)).await.ok()?;
    let port = Decoder::new(&reply.results).u32().ok()?;
    u16::try_from(port).ok().filter(|port| *port != 0)
}
