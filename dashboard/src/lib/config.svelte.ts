// What is configured: monitors, pools and load balancers as the API keeps them. Read when a page
// needs it and again after each change; the live state comes by the stream.

import { type Fault, Refusal, call, faultsOf } from './api'
import type { Balancer, Monitor, MonitorGroup, Named, Pool, WaitingRoom } from './types'

class Config {
  account = $state.raw<Named | null>(null)
  accounts = $state.raw<Named[]>([])
  zones = $state.raw<Named[]>([])
  monitors = $state.raw<Monitor[]>([])
  groups = $state.raw<MonitorGroup[]>([])
  pools = $state.raw<Pool[]>([])
  balancers = $state.raw<(Balancer & { path: string })[]>([])
  /** None: this node has no waiting rooms, or the token may not see them. */
  rooms = $state.raw<(WaitingRoom & { zone: string; url: string })[] | null>(null)
  status = $state<'idle' | 'reading' | 'read' | 'absent' | 'failed'>('idle')
  faults = $state.raw<Fault[]>([])

  /** `/accounts/{id}/load_balancers`. */
  get base(): string {
    return `/accounts/${this.account?.id ?? ''}/load_balancers`
  }

  pool(key: string): Pool | undefined {
    return this.pools.find((pool) => pool.id === key || pool.name === key)
  }

  monitor(key: string | null | undefined): Monitor | undefined {
    return this.monitors.find((monitor) => monitor.id === key)
  }

  group(key: string | null | undefined): MonitorGroup | undefined {
    return this.groups.find((group) => group.id === key)
  }

  room(key: string): (WaitingRoom & { zone: string; url: string }) | undefined {
    return this.rooms?.find((room) => room.id === key || room.name === key)
  }

  async choose(account: Named): Promise<void> {
    this.account = account
    await this.read()
  }

  async read(): Promise<void> {
    if (this.status === 'idle') this.status = 'reading'
    try {
      const [accounts, zones] = await Promise.all([
        call<Named[]>('GET', '/accounts'),
        call<Named[]>('GET', '/zones'),
      ])
      this.accounts = accounts.result
      this.zones = zones.result
      const before = this.account
      this.account = this.accounts.find((found) => found.id === before?.id) ?? this.accounts[0] ?? null
      if (this.account === null) throw new Refusal(404, [{ code: 0, message: 'This token reaches no account.' }])
      const scopes = this.zones.map((zone) => `/zones/${zone.id}/load_balancers`).concat(this.base)
      const [monitors, groups, pools, ...balancers] = await Promise.all([
        call<Monitor[]>('GET', `${this.base}/monitors`),
        call<MonitorGroup[]>('GET', `${this.base}/monitor_groups`),
        call<Pool[]>('GET', `${this.base}/pools`),
        ...scopes.map((scope) => call<Balancer[]>('GET', scope)),
      ])
      this.monitors = monitors.result
      this.groups = groups.result
      this.pools = pools.result
      this.balancers = balancers.flatMap((found, at) =>
        found.result.map((balancer) => ({ ...balancer, path: `${scopes[at]}/${balancer.id}` })),
      )
      this.rooms = await this.readRooms()
      this.faults = []
      this.status = 'read'
    } catch (error) {
      this.faults = faultsOf(error)
      this.status = error instanceof Refusal && error.unbuilt ? 'absent' : 'failed'
    }
  }

  private async readRooms(): Promise<(WaitingRoom & { zone: string; url: string })[] | null> {
    try {
      const lists = this.zones.map(async ({ id }) => {
        const path = `/zones/${id}/waiting_rooms`
        const rooms = (await call<WaitingRoom[]>('GET', `${path}?per_page=1000`)).result
        return rooms.map((room) => ({ ...room, zone: id, url: `${path}/${room.id}` }))
      })
      return (await Promise.all(lists)).flat()
    } catch (error) {
      if (error instanceof Refusal && (error.unbuilt || error.status === 403)) return null
      throw error
    }
  }
}

export const config = new Config()

/** Short word for the eye, long for the ear: monitors have no name of their own. */
export function monitorName(monitor: Monitor | undefined): string {
  if (monitor === undefined) return 'none'
  return monitor.description || `${monitor.type} ${monitor.path ?? ''}`.trim()
}

export function groupName(group: MonitorGroup | undefined): string {
  if (group === undefined) return 'monitor group'
  return group.description || `group of ${group.members.length}`
}
